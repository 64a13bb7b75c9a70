// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import org.jspecify.annotations.Nullable;

import java.util.UUID;
import java.util.concurrent.atomic.AtomicReference;

/// The holds that prefill instances may have for one request. Unless a decode instance has fetched
/// the KV, closing releases them, so that no instance keeps blocks for a decode request that
/// failed.
///
/// Threading: one thread, [#begin] another one.
final class HeldKv implements AutoCloseable {
    /// The header that carries the token; kvferry's server takes it from trusted callers.
    static final String HEADER = "X-Kvferry-Hold";

    private final Backends backends;
    private final Job job;
    private final AtomicReference<@Nullable Hold> open = new AtomicReference<>();

    private volatile boolean fetched;
    private volatile boolean lost;

    private record Hold(Upstream upstream, String token) {}

    HeldKv(Backends backends, Job job) {
        this.backends = backends;
        this.job = job;
    }

    /// A prefill request goes to `upstream`.
    ///
    /// @return the token that identifies the hold
    String begin(Upstream upstream) {
        giveBack();
        fetched = false;
        lost = false;
        var token = UUID.randomUUID().toString();
        open.set(new Hold(upstream, token));
        return token;
    }

    /// A decode instance answered a request that named the hold, so it has fetched it.
    void fetched() {
        fetched = true;
        open.set(null);
    }

    boolean isFetched() {
        return fetched;
    }

    /// A decode instance failed with a request that named the hold.
    void lost() {
        lost = true;
    }

    /// Whether one did, and none fetched it.
    boolean isLost() {
        return lost && !fetched;
    }

    /// Asks the instance to release the hold, in the background. One that does not know the call
    /// (vLLM) frees it at its own time limit.
    void giveBack() {
        var hold = open.getAndSet(null);
        if (hold == null) {
            return;
        }
        backends.release(hold.upstream, hold.token, job.call().requestId());
    }

    @Override
    public void close() {
        giveBack();
    }
}
