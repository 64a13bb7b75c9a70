// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.harness;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.kv.StepReport;

import java.time.Duration;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/// Hears the signals of worker halves, and checks that one which claims
/// [io.kvferry.spi.kv.ConnectorCapabilities.Feature#SIGNALS] gives them: at least one for each
/// report with completions. A signal may come a moment after its completion was taken.
public final class HarnessSignal {
    private final Semaphore heard = new Semaphore(0);
    private final AtomicInteger count = new AtomicInteger();
    private Duration limit = Duration.ofSeconds(10);

    public HostServices with(HostServices host) {
        return host.with(
                host.events(),
                () -> {
                    count.incrementAndGet();
                    heard.release();
                });
    }

    /// Sets how long a signal may come after the completion that it is for.
    public void within(Duration longest) {
        limit = longest;
    }

    /// Signals so far.
    public int count() {
        return count.get();
    }

    public void requireFor(StepReport report) {
        try {
            if (!report.completions().isEmpty()
                    && !heard.tryAcquire(limit.toNanos(), TimeUnit.NANOSECONDS)) {
                throw new AssertionError(
                        "SIGNALS is claimed, and nothing was signalled for "
                                + report.completions());
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new AssertionError("interrupted while waiting for a signal", e);
        }
    }
}
