// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;

import java.lang.foreign.MemorySegment;
import java.util.Optional;

/// Blocks of a request that come from a prefiller.
///
/// @param transfer what both engines call it
/// @param peer address of the prefiller's rank
/// @param promptBlocks that the prompt takes; a tensor that has more is cut
/// @param ids the last ones of these, where they go
/// @param deadline when it fails with TIMEOUT
record LoadTask(
        String transfer,
        String peer,
        int promptBlocks,
        int[] ids,
        Deadline deadline,
        BlockUse use) {
    /// Why tensors of so many blocks cannot be used; empty if they can.
    Optional<Failure> misfit(int blocks) {
        return blocks >= promptBlocks && ids.length <= promptBlocks
                ? Optional.empty()
                : Optional.of(
                        new Failure(
                                ErrorCode.INCOMPATIBLE,
                                "the prefiller has "
                                        + blocks
                                        + " blocks of a prompt of "
                                        + promptBlocks));
    }

    void scatter(TensorForm form, int layer, int blocks, MemorySegment tensor) {
        form.scatter(layer, ids, promptBlocks - ids.length, blocks, tensor);
    }

    long bytes(TensorForm form) {
        return form.bytes(ids.length) * form.layers();
    }
}
