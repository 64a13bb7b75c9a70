// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;

import java.util.Locale;
import java.util.Optional;

/// A request that ends with an error status: what the client reads, in OpenAI's shape.
public final class HttpProblem extends RuntimeException {
    private static final long serialVersionUID = 1L;

    private final int status;
    private final String type;
    private final String code;
    private final String param;

    private HttpProblem(int status, String type, String code, String param, String message) {
        super(message, null, false, false);
        this.status = status;
        this.type = type;
        this.code = code;
        this.param = param;
    }

    /// 400: the client has to change field `param` of its request.
    public static HttpProblem badRequest(String param, String message) {
        return new HttpProblem(400, "invalid_request_error", "invalid_request", param, message);
    }

    /// Any other status; the type follows from it.
    public static HttpProblem of(int status, String code, String message) {
        return new HttpProblem(
                status, status < 500 ? "invalid_request_error" : "server_error", code, "", message);
    }

    /// The HTTP status of a failure of the engine or a connector: 502 where a peer or a store
    /// failed and 503 where the engine is busy or closed, so another instance may succeed; 500
    /// where the request itself may be the cause.
    public static HttpProblem of(Failure failure) {
        int status =
                switch (failure.code()) {
                    case INVALID_REQUEST, UNSUPPORTED -> 400;
                    case NOT_FOUND -> 404;
                    case CLOSED, BACKPRESSURE, NO_MEMORY, UNAVAILABLE, CANCELLED -> 503;
                    case TIMEOUT -> 504;
                    case PEER_LOST,
                            PEER_REFUSED,
                            STALE_INCARNATION,
                            LEASE_EXPIRED,
                            IO,
                            PROTOCOL,
                            STORAGE_IO,
                            MISS,
                            NO_SPACE,
                            CORRUPT,
                            INCOMPATIBLE ->
                            502;
                    case ALREADY_ACTIVE, BAD_CONFIG, PLUGIN_CONFLICT, INTERNAL -> 500;
                };
        return of(status, codeOf(failure.code()), failure.message());
    }

    private static String codeOf(ErrorCode code) {
        return code.name().toLowerCase(Locale.ROOT);
    }

    public int status() {
        return status;
    }

    /// The wait the client should keep before it tries again, for those problems where trying again
    /// makes sense.
    public Optional<String> retryAfterSeconds() {
        return status == 503 ? Optional.of("1") : Optional.empty();
    }

    /// `{"error": {"message", "type", "param", "code"}}`.
    public String toJson() {
        var error = Json.object();
        var inner = error.putObject("error");
        inner.put("message", String.valueOf(getMessage())).put("type", type);
        if (param.isEmpty()) {
            inner.putNull("param");
        } else {
            inner.put("param", param);
        }
        inner.put("code", code);
        return Json.text(error);
    }
}
