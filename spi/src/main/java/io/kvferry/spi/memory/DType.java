// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.memory;

import java.util.Arrays;
import java.util.Optional;

/// Element types of KV caches and encoder outputs. [#label] is the name torch, vLLM and safetensors
/// users know.
public enum DType {
    FLOAT32("float32", 4),
    FLOAT16("float16", 2),
    BFLOAT16("bfloat16", 2),
    FP8_E4M3("float8_e4m3fn", 1),
    FP8_E5M2("float8_e5m2", 1),
    INT8("int8", 1),
    UINT8("uint8", 1),
    INT32("int32", 4),
    INT64("int64", 8);

    private final String label;
    private final int bytes;

    DType(String label, int bytes) {
        this.label = label;
        this.bytes = bytes;
    }

    public String label() {
        return label;
    }

    /// Bytes per element.
    public int bytes() {
        return bytes;
    }

    /// The type of that label, with or without the prefix `torch.`.
    public static Optional<DType> ofLabel(String label) {
        var bare = label.startsWith("torch.") ? label.substring(6) : label;
        return Arrays.stream(values()).filter(type -> type.label.equals(bare)).findFirst();
    }
}
