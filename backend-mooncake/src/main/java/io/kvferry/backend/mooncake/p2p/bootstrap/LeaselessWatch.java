// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.bootstrap;

import io.kvferry.toolkit.bounded.LastingLoop;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/// Probes the side channels of registered workers that never renew, as vLLM's, and removes those
/// that have not answered several times in a row. Otherwise a worker that is gone, or never
/// existed, would stay listed and cost a time-out per request.
///
/// Threading: one thread of its own.
final class LeaselessWatch implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(LeaselessWatch.class);
    private static final Duration LOOK = Duration.ofSeconds(20);

    /// Failed probes in a row before a worker is removed.
    private static final int PATIENCE = 3;

    private final BootstrapRegistry registry;
    private final Duration answer;
    private final ScheduledThreadPoolExecutor clock;
    private Map<BootstrapRegistry.Leaseless, Integer> silent = new HashMap<>();

    LeaselessWatch(BootstrapRegistry registry) {
        this(registry, Probe.ANSWER);
    }

    /// @param answer how long a side channel may take to answer
    LeaselessWatch(BootstrapRegistry registry, Duration answer) {
        this.registry = registry;
        this.answer = answer;
        this.clock =
                new ScheduledThreadPoolExecutor(
                        1, Thread.ofPlatform().name("mooncake-bootstrap-watch").daemon().factory());
        var _ =
                clock.scheduleWithFixedDelay(
                        LastingLoop.repeated(
                                () -> SideChannel.guard("mooncake-bootstrap-watch", this::look)),
                        LOOK.toMillis(),
                        LOOK.toMillis(),
                        TimeUnit.MILLISECONDS);
    }

    void look() {
        var before = silent;
        var now = new HashMap<BootstrapRegistry.Leaseless, Integer>();
        var workers = registry.leaseless();
        var answering =
                Probe.answering(
                        workers.stream().map(BootstrapRegistry.Leaseless::addr).toList(), answer);
        for (var worker : workers) {
            if (!answering.contains(worker.addr())) {
                int looks = before.getOrDefault(worker, 0) + 1;
                if (looks >= PATIENCE) {
                    LOG.info(
                            "no side channel answers at {} any more: not listed from now on",
                            worker.addr());
                    registry.remove(worker);
                } else {
                    now.put(worker, looks);
                }
            }
        }
        silent = now;
    }

    @Override
    public void close() {
        clock.shutdownNow();
    }
}
