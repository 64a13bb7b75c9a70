// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.TransferParams;

/// How a request ended. Every submitted request gets exactly one.
public sealed interface Outcome {
    Usage usage();

    /// It ran to its end, or was aborted (reason ABORT).
    ///
    /// @param tokens generated tokens; without the end token, with the tokens of a stop string
    /// @param kvParams `kv_transfer_params` of the response, from the connector
    /// @param ecParams `ec_transfer_params` of the response
    @SuppressWarnings("ArrayRecordComponent") // a copy made for the client
    record Finished(
            FinishReason reason,
            int[] tokens,
            TransferParams kvParams,
            TransferParams ecParams,
            Usage usage)
            implements Outcome {}

    /// It could not be served.
    record Failed(Failure failure, Usage usage) implements Outcome {}
}
