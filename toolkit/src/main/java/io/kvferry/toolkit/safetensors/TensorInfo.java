// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.safetensors;

import java.util.List;

/// One entry of a safetensors header, already checked: `end - begin` is the size that shape and
/// type ask for.
///
/// @param shape dimensions, outermost first; empty for a scalar; a zero makes the tensor empty
/// @param begin offset of the first byte, counted from the end of the header
/// @param end offset behind the last byte, same origin
public record TensorInfo(String name, TensorType type, List<Long> shape, long begin, long end) {
    public TensorInfo {
        shape = List.copyOf(shape);
    }

    /// Bytes of the tensor.
    public long byteSize() {
        return end - begin;
    }

    /// Bytes that `shape` elements of `type` take; throws [ArithmeticException] when that exceeds a
    /// long or a dimension is negative.
    static long byteSize(TensorType type, List<Long> shape) {
        long size = type.bytes();
        boolean empty = false;
        for (long dimension : shape) {
            if (dimension < 0) {
                throw new ArithmeticException("negative dimension " + dimension);
            }
            empty |= dimension == 0;
            size = Math.multiplyExact(size, Math.max(1, dimension));
        }
        return empty ? 0 : size;
    }
}
