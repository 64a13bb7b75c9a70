// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.ec;

import io.kvferry.spi.kv.WorkerHalf;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.MemoryRange;

/// The worker half of an encoder-cache connector on one rank; the subject of its transfer ids is
/// the item's hash. Threads and errors as [io.kvferry.spi.kv.WorkerConnector].
public interface EcWorkerConnector extends WorkerHalf {
    /// The memory of this rank's encoder cache, once, before the first step: one piece, in which
    /// every [EncoderOutput] lies that this half is ever given, to fill or to save. A half that
    /// moves bytes through a transfer backend registers it here, and nothing per item. It stays in
    /// place until [#close] has returned.
    default void registerMemory(MemoryRange memory) {}

    /// Starts the loads of the plan: allocate in `cache`, fill, publish (or discard), complete.
    /// SYNC loads are done or failed on return.
    void beginStep(WorkerStep step, EncoderCache cache);

    /// An item was encoded in this step. Must take what it needs before [#endStep] returns, or
    /// copy.
    void save(EcItem item, EncoderOutput output);

    /// All items of the step have been encoded.
    void endStep(WorkerStep step);
}
