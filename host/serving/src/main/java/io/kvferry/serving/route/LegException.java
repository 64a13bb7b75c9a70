// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import java.io.IOException;

/// One leg of a request got no whole response.
final class LegException extends IOException {
    private static final long serialVersionUID = 1L;

    private final Cause cause;

    /// Why there is none.
    enum Cause {
        /// No connection: the instance did not receive the request.
        UNREACHED,
        /// No connection in time, to an instance that answers others.
        BUSY,
        /// The connection broke, or the response is not HTTP.
        BROKEN,
        /// No first byte, or no further byte, within the limit.
        SILENT,
        /// The request's own deadline passed.
        DEADLINE,
        /// The router cancelled it.
        CANCELLED
    }

    LegException(Cause cause, String message) {
        super(message);
        this.cause = cause;
    }

    /// Whether the instance may have seen the request.
    boolean started() {
        return cause != Cause.UNREACHED && cause != Cause.BUSY;
    }

    /// Whether the instance answers others and may answer this one later.
    boolean isBusy() {
        return cause == Cause.BUSY;
    }

    /// Whether the connection broke.
    boolean isBroken() {
        return cause == Cause.BROKEN;
    }

    /// Whether the instance caused it, not the router or the client.
    boolean isInstanceAtFault() {
        return switch (cause) {
            case UNREACHED, BUSY, BROKEN, SILENT -> true;
            case DEADLINE, CANCELLED -> false;
        };
    }
}
