// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.safetensors;

import java.util.Optional;

/// Element types of a safetensors file, under the names that its header uses.
///
/// Types narrower than a byte (`F4`, `F6_*`) are left out on purpose: a file with one is refused by
/// name.
public enum TensorType {
    BOOL(1),
    U8(1),
    I8(1),
    F8_E5M2(1),
    F8_E4M3(1),
    F8_E8M0(1),
    I16(2),
    U16(2),
    F16(2),
    BF16(2),
    I32(4),
    U32(4),
    F32(4),
    C64(8),
    F64(8),
    I64(8),
    U64(8);

    private final int bytes;

    TensorType(int bytes) {
        this.bytes = bytes;
    }

    /// Bytes of one element.
    public int bytes() {
        return bytes;
    }

    /// The type behind a header's `dtype`; empty for a name that is not in this list.
    public static Optional<TensorType> ofName(String name) {
        for (TensorType type : values()) {
            if (type.name().equals(name)) {
                return Optional.of(type);
            }
        }
        return Optional.empty();
    }
}
