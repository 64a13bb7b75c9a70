// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store;

import io.kvferry.spi.ErrorCode;

import java.util.Arrays;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Collectors;

/// Mooncake's result codes by their numbers. Calls on batches answer the numbers themselves, one
/// per key.
public enum StoreCode {
    OK(0, ErrorCode.INTERNAL),
    INTERNAL(-1, ErrorCode.INTERNAL),
    BUFFER_OVERFLOW(-10, ErrorCode.NO_MEMORY),
    SEGMENT_NOT_FOUND(-101, ErrorCode.NOT_FOUND),
    SEGMENT_ALREADY_EXISTS(-102, ErrorCode.INVALID_REQUEST),
    CLIENT_NOT_FOUND(-103, ErrorCode.NOT_FOUND),
    NO_AVAILABLE_HANDLE(-200, ErrorCode.NO_SPACE),
    INVALID_KEY(-400, ErrorCode.INVALID_REQUEST),
    WRITE_FAIL(-500, ErrorCode.STORAGE_IO),
    INVALID_PARAMS(-600, ErrorCode.INVALID_REQUEST),
    ILLEGAL_CLIENT(-601, ErrorCode.INVALID_REQUEST),
    INVALID_WRITE(-700, ErrorCode.INVALID_REQUEST),
    REPLICA_IS_NOT_READY(-703, ErrorCode.MISS),
    OBJECT_NOT_FOUND(-704, ErrorCode.MISS),
    OBJECT_ALREADY_EXISTS(-705, ErrorCode.INVALID_REQUEST),
    OBJECT_HAS_LEASE(-706, ErrorCode.INVALID_REQUEST),
    LEASE_EXPIRED(-707, ErrorCode.LEASE_EXPIRED),
    TRANSFER_FAIL(-800, ErrorCode.IO),
    CHECKSUM_MISMATCH(-801, ErrorCode.CORRUPT),
    RPC_FAIL(-900, ErrorCode.PEER_LOST),
    RPC_TIMEOUT(-901, ErrorCode.TIMEOUT),
    UNAVAILABLE_IN_CURRENT_STATUS(-1010, ErrorCode.CLOSED),
    UNAVAILABLE_IN_CURRENT_MODE(-1011, ErrorCode.UNSUPPORTED),
    NOT_SUPPORTED(-1012, ErrorCode.UNSUPPORTED),
    FILE_READ_FAIL(-1102, ErrorCode.STORAGE_IO),
    FILE_WRITE_FAIL(-1103, ErrorCode.STORAGE_IO);

    private static final Map<Integer, StoreCode> BY_NUMBER =
            Arrays.stream(values())
                    .collect(Collectors.toUnmodifiableMap(StoreCode::number, Function.identity()));

    private final int number;
    private final ErrorCode error;

    StoreCode(int number, ErrorCode error) {
        this.number = number;
        this.error = error;
    }

    /// Mooncake's number: 0 or negative.
    public int number() {
        return number;
    }

    /// The closest [ErrorCode]; INTERNAL for [#OK], which is not an error.
    public ErrorCode error() {
        return error;
    }

    /// The code with this number; INTERNAL for an unknown number.
    public static StoreCode of(long number) {
        return BY_NUMBER.getOrDefault((int) number, INTERNAL);
    }

    /// The number with its name, for messages.
    public static String text(long number) {
        var code = BY_NUMBER.get((int) number);
        return code == null ? Long.toString(number) : number + " " + code;
    }
}
