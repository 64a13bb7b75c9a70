// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.ec;

import io.kvferry.spi.kv.WorkerHalf;
import io.kvferry.spi.kv.WorkerStep;

/// The worker half of an encoder-cache connector on one rank; the subject of its transfer ids is
/// the item's hash. Threads and errors as [io.kvferry.spi.kv.WorkerConnector].
public interface EcWorkerConnector extends WorkerHalf {
    /// Starts the loads of the plan: allocate in `cache`, fill, publish (or discard), complete.
    /// SYNC loads are done or failed on return.
    void beginStep(WorkerStep step, EncoderCache cache);

    /// An item was encoded in this step. Must take what it needs before [#endStep] returns, or
    /// copy.
    void save(EcItem item, EncoderOutput output);

    /// All items of the step have been encoded.
    void endStep(WorkerStep step);
}
