// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi;

import java.util.Objects;

/// A failure as a value: what outcomes and reports carry, so that nobody can lose it by not
/// catching.
public record Failure(ErrorCode code, String message) {
    private static final Failure NOT_DESCRIBED =
            new Failure(ErrorCode.NO_MEMORY, "no heap memory to describe a failure");

    public Failure {
        Objects.requireNonNull(code, "code");
        Objects.requireNonNull(message, "message");
    }

    /// An exception as a value; one without an error code becomes [ErrorCode#INTERNAL]. Where there
    /// is no memory for it, one that says so: what must be told of a failure can always be told.
    public static Failure of(Throwable thrown) {
        try {
            return thrown instanceof KvFerryException coded
                    ? new Failure(coded.code(), String.valueOf(coded.getMessage()))
                    : new Failure(ErrorCode.INTERNAL, thrown.toString());
        } catch (OutOfMemoryError _) {
            return NOT_DESCRIBED;
        }
    }

    public KvFerryException toException() {
        return new KvFerryException(code, message);
    }

    @Override
    public String toString() {
        return code + ": " + message;
    }
}
