// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.ec;

import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.MemoryRange;

import java.lang.foreign.MemorySegment;

/// The encoder's output for one item: `embeddings` rows of `width` elements, row-major, contiguous.
public record EncoderOutput(MemoryRange memory, int embeddings, int width, DType dtype) {
    public EncoderOutput {
        long needed =
                Math.multiplyExact(Math.multiplyExact((long) embeddings, width), dtype.bytes());
        if (memory.length() != needed) {
            throw new IllegalArgumentException(
                    "encoder output "
                            + embeddings
                            + " x "
                            + width
                            + " "
                            + dtype.label()
                            + " needs "
                            + needed
                            + " bytes, got "
                            + memory.length());
        }
    }

    /// An output in host memory.
    public EncoderOutput(MemorySegment data, int embeddings, int width, DType dtype) {
        this(new MemoryRange.Host(data), embeddings, width, dtype);
    }

    /// The bytes, when they are in host memory.
    ///
    /// @throws IllegalStateException if they are elsewhere
    public MemorySegment data() {
        return memory.hostSegment();
    }
}
