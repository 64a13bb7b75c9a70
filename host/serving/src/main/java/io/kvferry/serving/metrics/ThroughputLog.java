// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.metrics;

import io.kvferry.engine.EngineStats;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/// Logs the throughput of an engine in the format of vLLM's line, periodically while requests run
/// and once more after the last one has ended. Hit rates cover the last interval with lookups.
///
/// Threading: owns the thread `kvferry-throughput`.
public final class ThroughputLog implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(ThroughputLog.class);

    /// vLLM's.
    private static final long PERIOD_SECONDS = 10;

    private final ScheduledExecutorService timer;

    private ThroughputLog(ScheduledExecutorService timer) {
        this.timer = timer;
    }

    /// Begins to log.
    public static ThroughputLog start(Supplier<EngineStats> engine) {
        return start(
                engine,
                Executors.newSingleThreadScheduledExecutor(
                        Thread.ofPlatform().daemon().name("kvferry-throughput").factory()),
                System::nanoTime);
    }

    /// @param timer shut down at the end
    static ThroughputLog start(
            Supplier<EngineStats> engine, ScheduledExecutorService timer, LongSupplier nanos) {
        var lines = new Lines(engine.get(), nanos.getAsLong());
        var _ =
                timer.scheduleAtFixedRate(
                        () -> write(engine, lines, nanos.getAsLong()),
                        PERIOD_SECONDS,
                        PERIOD_SECONDS,
                        TimeUnit.SECONDS);
        return new ThroughputLog(timer);
    }

    private static void write(Supplier<EngineStats> engine, Lines lines, long nanos) {
        try {
            lines.next(engine.get(), nanos).ifPresent(LOG::info);
        } catch (RuntimeException e) { // must not end the timer
            LOG.debug("no figures", e);
        }
    }

    /// The lines, one after the other.
    static final class Lines {
        private EngineStats before;
        private long beforeNanos;
        private boolean wasBusy;
        private double local;
        private double external;

        Lines(EngineStats first, long nanos) {
            before = first;
            beforeNanos = nanos;
        }

        /// The line for the time since the last call; empty while nothing happens.
        Optional<String> next(EngineStats now, long nanos) {
            double seconds = (nanos - beforeNanos) / 1e9;
            double prompt = delta(now, "prompt_tokens") / seconds;
            double generated = delta(now, "generated_tokens") / seconds;
            local = rate(now, "local_hit_tokens", "local_queried_tokens", local);
            external = rate(now, "external_delivered_tokens", "external_queried_tokens", external);
            int waiting = now.waiting() + now.loading();
            boolean busy = prompt > 0 || generated > 0 || now.running() > 0 || waiting > 0;
            boolean tell = busy || wasBusy;
            wasBusy = busy;
            before = now;
            beforeNanos = nanos;
            if (!tell) {
                return Optional.empty();
            }
            int total = Math.max(1, now.totalBlocks());
            var line =
                    String.format(
                            Locale.ROOT,
                            "Engine 000: Avg prompt throughput: %.1f tokens/s, Avg generation throughput: %.1f tokens/s,"
                                    + " Running: %d reqs, Waiting: %d reqs, KV cache usage: %.1f%%, Prefix cache hit rate: %.1f%%",
                            prompt,
                            generated,
                            now.running(),
                            waiting,
                            100.0 * (total - now.freeBlocks()) / total,
                            100 * local);
            return Optional.of(
                    now.counters().getOrDefault("external_queried_tokens", 0L) == 0
                            ? line
                            : line
                                    + String.format(
                                            Locale.ROOT,
                                            ", External prefix cache hit rate: %.1f%%",
                                            100 * external));
        }

        private long delta(EngineStats now, String counter) {
            return now.counter(counter) - before.counter(counter);
        }

        private double rate(EngineStats now, String part, String whole, double last) {
            long queried = delta(now, whole);
            return queried == 0 ? last : (double) delta(now, part) / queried;
        }
    }

    @Override
    public void close() {
        timer.shutdownNow();
    }
}
