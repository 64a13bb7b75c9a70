// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.telemetry;

import io.kvferry.engine.RequestListener;

/// When a request reached the stations of its life, on this process's monotonic clock.
///
/// Threading: made by the submitting thread, then the scheduler thread's.
public final class RequestClock {
    private final long submitted = System.nanoTime();
    private long started;
    private long firstToken;
    private long lastToken;
    private boolean hasStarted;
    private boolean hasToken;

    /// It takes part in steps; only the first time counts.
    public void start() {
        if (!hasStarted) {
            hasStarted = true;
            started = System.nanoTime();
        }
    }

    /// A token was sampled.
    void token(long now, RequestListener listener) {
        if (hasToken) {
            listener.nextToken(now - lastToken);
        } else {
            hasToken = true;
            firstToken = now;
            listener.firstToken(now - submitted);
        }
        lastToken = now;
    }

    RequestListener.Times end(long now) {
        return new RequestListener.Times(
                (hasStarted ? started : now) - submitted,
                hasToken ? firstToken - started : 0,
                lastToken - firstToken,
                now - submitted);
    }
}
