// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.metrics;

import static org.assertj.core.api.Assertions.assertThat;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;

import io.kvferry.engine.EngineStats;
import io.kvferry.spi.observe.Stats;

import org.junit.jupiter.api.Test;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;

class ThroughputLogTest {
    private static final long TEN_SECONDS = 10_000_000_000L;

    private static EngineStats stats(int running, int waiting, int free, long tokens) {
        return new EngineStats(
                waiting,
                1,
                0,
                0,
                running,
                0,
                0,
                free,
                100,
                0,
                0,
                0,
                0,
                0,
                Map.of(
                        "prompt_tokens", 10 * tokens,
                        "generated_tokens", tokens,
                        "local_queried_tokens", 10 * tokens,
                        "local_hit_tokens", 5 * tokens),
                Stats.EMPTY,
                Stats.EMPTY,
                "",
                "");
    }

    private static EngineStats idle(long tokens) {
        var busy = stats(0, 0, 100, tokens);
        return new EngineStats(
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                100,
                100,
                0,
                0,
                0,
                0,
                0,
                busy.counters(),
                Stats.EMPTY,
                Stats.EMPTY,
                "",
                "");
    }

    @Test
    void saysWhatHappenedSinceTheLastLineAndNothingWhileIdle() {
        var lines = new ThroughputLog.Lines(idle(0), 0);
        assertThat(lines.next(idle(0), TEN_SECONDS)).isEmpty();
        assertThat(lines.next(stats(3, 2, 25, 400), 2 * TEN_SECONDS))
                .hasValue(
                        "Engine 000: Avg prompt throughput: 400.0 tokens/s, Avg generation throughput: 40.0 tokens/s,"
                                + " Running: 3 reqs, Waiting: 3 reqs, KV cache usage: 75.0%, Prefix cache hit rate: 50.0%");
        assertThat(lines.next(idle(400), 3 * TEN_SECONDS))
                .hasValueSatisfying(line -> assertThat(line).contains("Running: 0 reqs"));
        assertThat(lines.next(idle(400), 4 * TEN_SECONDS)).isEmpty();
    }

    /// A timer whose time the test moves on.
    private static final class ManualTimer extends ScheduledThreadPoolExecutor {
        private final List<Runnable> tasks = new ArrayList<>();
        private final List<Duration> periods = new ArrayList<>();

        ManualTimer() {
            super(0);
        }

        @Override
        public ScheduledFuture<?> scheduleAtFixedRate(
                Runnable task, long first, long period, TimeUnit unit) {
            tasks.add(task);
            periods.add(Duration.of(first, unit.toChronoUnit()));
            periods.add(Duration.of(period, unit.toChronoUnit()));
            return super.schedule(() -> {}, 1, TimeUnit.DAYS);
        }
    }

    @Test
    void writesALineEveryTenSecondsAndNoneAfterItsEnd() {
        var logger = (Logger) LoggerFactory.getLogger(ThroughputLog.class);
        var lines = new ListAppender<ILoggingEvent>();
        var clock = new AtomicLong();
        var engine = new AtomicReference<>(idle(0));
        var timer = new ManualTimer();
        lines.start();
        logger.addAppender(lines);
        logger.setLevel(Level.INFO);
        try (var _ = ThroughputLog.start(engine::get, timer, clock::get)) {
            assertThat(timer.periods).containsOnly(Duration.ofSeconds(10)).hasSize(2);
            engine.set(stats(1, 0, 50, 400));
            clock.addAndGet(TEN_SECONDS);
            timer.tasks.getFirst().run();
            assertThat(lines.list)
                    .singleElement()
                    .asString()
                    .contains("Avg generation throughput: 40.0 tokens/s");
        } finally {
            logger.detachAppender(lines);
            logger.setLevel(null);
        }
        assertThat(timer.isShutdown()).isTrue();
    }
}
