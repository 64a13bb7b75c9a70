// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.transfer;

import io.kvferry.spi.Failure;

/// How a transfer ended.
public sealed interface TransferOutcome {
    /// All bytes moved.
    ///
    /// @param applied whether they are known to be applied at the target; false is the weaker
    ///   "handed to the network" of protocols without an acknowledgement (Mooncake TCP v1)
    /// @param nanos time from submit to completion
    record Done(long bytes, boolean applied, long nanos) implements TransferOutcome {}

    /// Not all bytes moved; any part of the destination may have been written.
    ///
    /// @param descriptors per descriptor, whether it did move; empty when the backend cannot tell
    record Failed(Failure failure, boolean[] descriptors) implements TransferOutcome {
        private static final boolean[] UNKNOWN = {};

        public Failed(Failure failure) {
            this(failure, UNKNOWN);
        }
    }

    /// Ended by [Transfer#cancel].
    record Cancelled() implements TransferOutcome {}

    /// Ended by its deadline.
    record TimedOut() implements TransferOutcome {}
}
