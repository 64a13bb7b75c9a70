// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import io.kvferry.spi.observe.Distribution;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.net.URI;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.ReentrantLock;

/// One instance behind the router: its address, its circuit breaker, its counters.
///
/// The circuit is closed while the instance works. It opens when the instance cannot be reached,
/// breaks a response off, or its `/health` fails; it becomes half open when `/health` answers 200
/// again, but after several failures in a row not before a growing pause is over. A half-open
/// instance gets one request as a probe, or any number when no other instance works; the first
/// response closes the circuit. What an instance answers never opens it: 4xx is the client's fault,
/// 429 and 503 say busy, and a 500 may be caused by the request.
///
/// Threading: any thread.
final class Upstream {
    private static final Logger LOG = LoggerFactory.getLogger(Upstream.class);
    private static final Duration FIRST_PAUSE = Duration.ofMillis(500);
    private static final int MAX_DOUBLINGS = 5;
    private static final int MAX_SILENT_PROBES = 3;

    final String role;
    final URI base;
    final Optional<Bootstrap> bootstrap;
    final LongAdder requests = new LongAdder();
    final LongAdder failures = new LongAdder();

    /// Microseconds from the first byte sent to the last byte read.
    final AtomicReference<Optional<Distribution>> legs = new AtomicReference<>(Optional.empty());

    final AtomicInteger inFlight = new AtomicInteger();
    private final AtomicBoolean probing = new AtomicBoolean();
    private final ReentrantLock lock = new ReentrantLock();
    private volatile Circuit circuit = Circuit.CLOSED;
    private int opened;
    private long openUntilNanos;
    private boolean trialUnderWay;

    /// Looks at `/health` in a row that had no answer in time.
    private final AtomicInteger silentProbes = new AtomicInteger();

    /// Whether requests go to an instance.
    enum Circuit {
        CLOSED,
        HALF_OPEN,
        OPEN
    }

    Upstream(String role, URI base, Optional<Bootstrap> bootstrap) {
        this.role = role;
        this.base = base;
        this.bootstrap = bootstrap;
    }

    void legEnded(long nanos) {
        var took = Distribution.of(nanos / 1000);
        legs.updateAndGet(all -> Optional.of(all.map(took::merge).orElse(took)));
    }

    URI at(String path) {
        var text = base.toString();
        return URI.create(
                (text.endsWith("/") ? text.substring(0, text.length() - 1) : text) + path);
    }

    /// Whether no other look at `/health` is under way; then [#endProbe] must follow.
    boolean beginProbe() {
        return probing.compareAndSet(false, true);
    }

    void endProbe() {
        probing.set(false);
    }

    Circuit circuit() {
        return circuit;
    }

    boolean isUp() {
        return circuit != Circuit.OPEN;
    }

    /// Takes the right to send a request: always while the circuit is closed, one at a time while
    /// it is half open.
    ///
    /// @param only whether no other instance works, so that a half-open one gets all requests
    boolean admit(boolean only) {
        lock.lock();
        try {
            return switch (circuit) {
                case CLOSED -> true;
                case OPEN -> false;
                case HALF_OPEN -> {
                    if (trialUnderWay && !only) {
                        yield false;
                    }
                    trialUnderWay = true;
                    yield true;
                }
            };
        } finally {
            lock.unlock();
        }
    }

    /// It answered something: it works.
    void answered() {
        lock.lock();
        try {
            if (circuit == Circuit.HALF_OPEN) {
                LOG.info("{} works again", this);
                circuit = Circuit.CLOSED;
                opened = 0;
            }
            trialUnderWay = false;
        } finally {
            lock.unlock();
        }
    }

    /// A request ended without telling anything about the instance.
    void undecided() {
        lock.lock();
        try {
            trialUnderWay = false;
        } finally {
            lock.unlock();
        }
    }

    /// It cannot be reached, or broke a response off.
    void failed(String why) {
        failures.increment();
        lock.lock();
        try {
            if (circuit != Circuit.OPEN) {
                LOG.warn("{} is down: {}", this, why);
                opened = Math.min(opened + 1, MAX_DOUBLINGS);
                // The first probe that succeeds ends the first pause; a service that was restarted
                // is used again at once.
                long pause = opened == 1 ? 0 : FIRST_PAUSE.toNanos() << opened;
                openUntilNanos = System.nanoTime() + pause;
            }
            circuit = Circuit.OPEN;
            trialUnderWay = false;
        } finally {
            lock.unlock();
        }
        bootstrap.ifPresent(Bootstrap::forget);
    }

    /// `/health` stayed silent: a busy host is slow to answer, so once is not enough.
    void probeTimedOut(String why) {
        if (silentProbes.incrementAndGet() >= MAX_SILENT_PROBES) {
            probed(false, why);
        }
    }

    /// What a look at `/health` found.
    void probed(boolean works, String why) {
        silentProbes.set(0);
        if (!works) {
            if (isUp()) {
                failed(why);
            }
            return;
        }
        lock.lock();
        try {
            if (circuit == Circuit.OPEN && System.nanoTime() - openUntilNanos >= 0) {
                circuit = Circuit.HALF_OPEN;
                LOG.info("{} is healthy again", this);
            }
        } finally {
            lock.unlock();
        }
    }

    @Override
    public String toString() {
        return role + " " + base;
    }
}
