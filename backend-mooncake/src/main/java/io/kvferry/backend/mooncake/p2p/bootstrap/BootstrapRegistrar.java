// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.bootstrap;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.LastingLoop;
import io.kvferry.toolkit.bounded.LoopReport;
import io.kvferry.toolkit.recovery.OpeningParts;
import io.kvferry.toolkit.secret.FleetSecret;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.net.URI;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/// Keeps one prefiller worker registered. The registration is a lease that a thread renews, so a
/// dead worker expires and a restarted bootstrap service learns of the running workers.
///
/// Threading: owns one thread.
public final class BootstrapRegistrar implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(BootstrapRegistrar.class);
    public static final Duration LEASE = Duration.ofSeconds(15);
    private static final Duration RENEWAL = Duration.ofSeconds(5);
    private static final Duration FIRST_BACK_OFF = Duration.ofMillis(100);
    private static final Duration LAST_BACK_OFF = Duration.ofSeconds(2);

    private final URI base;
    private final WorkerRegistration registration;
    private final BootstrapClient client;
    private final Thread thread;
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition closing = lock.newCondition();
    private boolean closed;

    private BootstrapRegistrar(
            URI base,
            WorkerRegistration registration,
            Duration limit,
            Optional<FleetSecret> secret) {
        this.base = base;
        this.registration = registration;
        this.client = new BootstrapClient(limit, secret);
        this.thread =
                Thread.ofPlatform()
                        .name(
                                "mooncake-registrar-"
                                        + registration.tpRank()
                                        + "-"
                                        + registration.ppRank())
                        .daemon(true)
                        .unstarted(new LastingLoop(this::renew));
    }

    /// Registers, retrying until the limit (the service may still be starting, or a previous worker
    /// stopping), and then renews in the background.
    ///
    /// @throws KvFerryException the last failure
    public static BootstrapRegistrar start(
            URI base,
            WorkerRegistration registration,
            Duration limit,
            Optional<FleetSecret> secret) {
        var registrar = new BootstrapRegistrar(base, registration, limit, secret);
        try (var parts = new OpeningParts()) {
            parts.add(registrar, BootstrapRegistrar::close);
            registrar.first(Deadline.in(limit));
            registrar.thread.start();
            parts.keep();
            return registrar;
        }
    }

    private void first(Deadline until) {
        var backOff = FIRST_BACK_OFF;
        while (true) {
            try {
                client.register(base, registration);
                return;
            } catch (KvFerryException e) {
                if (until.passed() || !pause(backOff)) {
                    throw e;
                }
                LOG.info(
                        "registration of {} at {} will be tried again: {}",
                        registration.addr(),
                        base,
                        e.getMessage());
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new KvFerryException(
                        ErrorCode.CLOSED, "interrupted while registering at " + base, e);
            }
            backOff =
                    backOff.multipliedBy(2).compareTo(LAST_BACK_OFF) > 0
                            ? LAST_BACK_OFF
                            : backOff.multipliedBy(2);
        }
    }

    private void renew() {
        while (pause(RENEWAL)) {
            try {
                client.register(base, registration);
            } catch (RuntimeException | Error e) { // retried at the next renewal
                LoopReport.WARN.log(
                        LOG,
                        "registration of {} at {} is not renewed: {}",
                        registration.addr(),
                        base,
                        String.valueOf(e.getMessage()));
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                return;
            }
        }
    }

    /// False when it is time to end.
    private boolean pause(Duration time) {
        lock.lock();
        try {
            long left = time.toNanos();
            while (left > 0 && !closed) {
                left = closing.awaitNanos(left);
            }
            return !closed;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        } finally {
            lock.unlock();
        }
    }

    @Override
    public void close() {
        lock.lock();
        try {
            closed = true;
            closing.signalAll();
        } finally {
            lock.unlock();
        }
        client.close();
    }
}
