// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.metrics;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.EngineStats;
import io.kvferry.spi.observe.Stats;

import org.junit.jupiter.api.Test;

import java.util.Map;

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
}
