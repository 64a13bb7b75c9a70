// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import io.kvferry.spi.observe.Distribution;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.net.URI;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.ReentrantLock;

/// One instance behind the router: its address, circuit breaker and counters.
///
/// The circuit is closed while the instance works. It opens when the instance cannot be reached,
/// breaks off a response, or fails its `/health`. It becomes half open when `/health` answers 200
/// again; after several failures in a row only after a growing pause, or if no other instance
/// works. An instance that has just registered itself starts with an open circuit. A half-open
/// instance gets one trial request at a time, or all requests if no other instance works; the first
/// response closes the circuit. An error status never opens it: 4xx is the client's fault, 429 and
/// 503 mean busy, and a 500 may be caused by the request.
///
/// Threading: any thread.
final class Upstream {
    private static final Logger LOG = LoggerFactory.getLogger(Upstream.class);
    private static final Duration FIRST_PAUSE = Duration.ofMillis(500);
    private static final int MAX_DOUBLINGS = 5;
    private static final int MAX_PROBE_TIMEOUTS = 3;

    final String role;
    final URI base;
    final Optional<Bootstrap> bootstrap;

    /// The blocks in its prefix cache; empty where its KV events are not followed.
    final CachedPrefixes cached;

    final LongAdder requests = new LongAdder();
    final LongAdder failures = new LongAdder();

    /// Microseconds from the first byte sent to the last byte read.
    final AtomicReference<Optional<Distribution>> legs = new AtomicReference<>(Optional.empty());

    final AtomicInteger inFlight = new AtomicInteger();

    /// The `/health` probe that is running, if one is.
    final AtomicReference<@Nullable CompletableFuture<Void>> probe = new AtomicReference<>();

    private final ReentrantLock lock = new ReentrantLock();
    private volatile Circuit circuit = Circuit.CLOSED;
    private int opened;
    private long openUntilNanos;
    private boolean trialUnderWay;

    private volatile long noTokensUntilNanos = System.nanoTime();

    /// Consecutive `/health` probes without an answer in time.
    private final AtomicInteger probeTimeouts = new AtomicInteger();

    /// When the latest byte of a response came.
    private volatile long heardNanos = System.nanoTime();

    /// Whether an instance gets requests.
    enum Circuit {
        CLOSED,
        HALF_OPEN,
        OPEN
    }

    Upstream(String role, URI base, Optional<Bootstrap> bootstrap) {
        this.role = role;
        this.base = base;
        this.bootstrap = bootstrap;
        cached = new CachedPrefixes(role + " " + base);
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

    /// It has just come, and gets requests once its `/health` answers 200.
    void awaitHealth() {
        lock.lock();
        try {
            circuit = Circuit.OPEN;
            openUntilNanos = System.nanoTime();
        } finally {
            lock.unlock();
        }
    }

    /// Whether it is asked for the tokens of prompts: not for a while after that failed.
    boolean tokenizes() {
        return circuit == Circuit.CLOSED && System.nanoTime() - noTokensUntilNanos >= 0;
    }

    void pauseTokens(Duration pause) {
        noTokensUntilNanos = System.nanoTime() + pause.toNanos();
    }

    Circuit circuit() {
        return circuit;
    }

    boolean isUp() {
        return circuit != Circuit.OPEN;
    }

    /// Whether a request may be sent: always while the circuit is closed, one at a time while it is
    /// half open.
    ///
    /// @param only whether no other instance works; a half-open instance gets all requests then
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

    /// Bytes of a response came from the instance.
    void heard() {
        heardNanos = System.nanoTime();
    }

    /// Whether bytes of a response have arrived since `nanos`.
    boolean heardSince(long nanos) {
        return heardNanos - nanos > 0;
    }

    /// The instance sent a response, whatever its status.
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

    /// A request ended for a reason that says nothing about the instance.
    void undecided() {
        lock.lock();
        try {
            trialUnderWay = false;
        } finally {
            lock.unlock();
        }
    }

    /// A request to the instance failed through its fault.
    void failed(LegException why) {
        if (why.isBusy()) {
            undecided();
        } else {
            failed(String.valueOf(why.getMessage()));
        }
    }

    /// The instance cannot be reached, or broke a response off.
    void failed(String why) {
        failures.increment();
        lock.lock();
        try {
            if (circuit != Circuit.OPEN) {
                LOG.warn("{} is down: {}", this, why);
                opened = Math.min(opened + 1, MAX_DOUBLINGS);
                // No pause after the first failure: a restarted instance is used as soon as its
                // /health answers.
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

    /// `/health` did not answer in time, or no connection came about. A host may be busy or its
    /// port attacked, so one timeout does not count, and none does while the instance sends
    /// responses.
    ///
    /// @param since when the probe began
    void probeTimedOut(String why, long since) {
        if (heardSince(since)) {
            probeTimeouts.set(0);
        } else if (probeTimeouts.incrementAndGet() >= MAX_PROBE_TIMEOUTS) {
            probed(false, why);
        }
    }

    /// Takes the result of a `/health` probe.
    void probed(boolean works, String why) {
        probed(works, why, false);
    }

    /// @param only whether no other instance works; the pause is then skipped
    void probed(boolean works, String why, boolean only) {
        probeTimeouts.set(0);
        if (!works) {
            if (isUp()) {
                failed(why);
            }
            return;
        }
        lock.lock();
        try {
            if (circuit == Circuit.OPEN && (only || System.nanoTime() - openUntilNanos >= 0)) {
                circuit = Circuit.HALF_OPEN;
                LOG.info("{} is healthy", this);
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
