// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi;

import java.util.Objects;

/// A failure as a value, as carried by outcomes and reports; unlike an exception it cannot go
/// uncaught.
public record Failure(ErrorCode code, String message) {
    private static final Failure NOT_DESCRIBED =
            new Failure(ErrorCode.NO_MEMORY, "no heap memory to describe a failure");

    public Failure {
        Objects.requireNonNull(code, "code");
        Objects.requireNonNull(message, "message");
    }

    /// Converts an exception; one without an error code becomes [ErrorCode#INTERNAL]. If memory
    /// runs out meanwhile, returns a preallocated failure that says so, so the conversion itself
    /// never fails.
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
