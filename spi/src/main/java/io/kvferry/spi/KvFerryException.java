// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi;

import java.util.Objects;

/// The exception of kvferry: unchecked, always with an [ErrorCode].
///
/// The message says what failed, where (function, peer, path, byte counts), and how to fix it if
/// that is known. Asynchronous paths do not throw it; they carry the same code in a [Failure].
public final class KvFerryException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    private final ErrorCode code;

    public KvFerryException(ErrorCode code, String message) {
        super(message);
        this.code = Objects.requireNonNull(code, "code");
    }

    public KvFerryException(ErrorCode code, String message, Throwable cause) {
        super(message, cause);
        this.code = Objects.requireNonNull(code, "code");
    }

    public ErrorCode code() {
        return code;
    }
}
