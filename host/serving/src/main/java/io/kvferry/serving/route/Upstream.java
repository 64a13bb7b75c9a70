// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import java.net.URI;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.LongAdder;

/// One instance behind the router: its address, whether it seems to work, its counters.
///
/// Threading: any thread.
final class Upstream {
    final String role;
    final URI base;
    final Optional<Bootstrap> bootstrap;
    final LongAdder requests = new LongAdder();
    final LongAdder failures = new LongAdder();
    final LongAdder legNanos = new LongAdder();
    final LongAdder legs = new LongAdder();
    final AtomicInteger inFlight = new AtomicInteger();
    private final AtomicBoolean probing = new AtomicBoolean();
    private volatile boolean up = true;

    Upstream(String role, URI base, Optional<Bootstrap> bootstrap) {
        this.role = role;
        this.base = base;
        this.bootstrap = bootstrap;
    }

    URI at(String path) {
        var text = base.toString();
        return URI.create(
                (text.endsWith("/") ? text.substring(0, text.length() - 1) : text) + path);
    }

    /// Whether no other probe is under way; then [#endProbe] must follow.
    boolean beginProbe() {
        return probing.compareAndSet(false, true);
    }

    void endProbe() {
        probing.set(false);
    }

    /// What a probe or a failed leg found; a new instance counts as up until something fails.
    void seen(boolean works) {
        up = works;
    }

    boolean isUp() {
        return up;
    }

    void failed() {
        failures.increment();
        up = false;
        bootstrap.ifPresent(Bootstrap::forget);
    }

    @Override
    public String toString() {
        return role + " " + base;
    }
}
