// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.ec;

import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.MemoryRange;

import java.lang.foreign.MemorySegment;
import java.util.Objects;

/// The encoder's output for one item: `embeddings` rows of `width` elements, row-major, contiguous,
/// within the memory of the encoder cache.
///
/// @param memory the whole of it, as [EcWorkerConnector#registerMemory] named it
/// @param offset byte of `memory` where the first row begins, a multiple of the size of a row
public record EncoderOutput(
        MemoryRange memory, long offset, int embeddings, int width, DType dtype) {
    public EncoderOutput {
        long bytes = bytes(embeddings, width, dtype);
        Objects.checkFromIndexSize(offset, bytes, memory.length());
    }

    private static long bytes(int embeddings, int width, DType dtype) {
        return Math.multiplyExact(Math.multiplyExact((long) embeddings, width), dtype.bytes());
    }

    /// Bytes of all rows.
    public long bytes() {
        return bytes(embeddings, width, dtype);
    }

    /// The rows, when they are in host memory; allocates a slice object.
    ///
    /// @throws IllegalStateException if they are elsewhere
    public MemorySegment data() {
        return memory.hostSegment().asSlice(offset, bytes());
    }
}
