// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static io.kvferry.backend.mooncake.p2p.testkit.ChildEngine.BLOCKS_PER_REQUEST;
import static io.kvferry.backend.mooncake.p2p.testkit.ChildEngine.PROMPT_TOKENS;
import static io.kvferry.backend.mooncake.p2p.testkit.ChildEngine.SHAPE;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.decodeElsewhere;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.backend.mooncake.p2p.testkit.ChildEngine;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.backend.mooncake.te.CrossMemorySupport;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Map;

/// What carries the KV between two processes of one host, as the prefiller reports it. The child
/// checks the bytes that it says it has.
class SameHostTest {
    private static final int REQUESTS = 4;

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void theOptionDecidesWhetherTheCacheLiesInSharedMemory(boolean crossMemory) {
        assumeTrue(Files.isWritable(Path.of("/dev/shm")), "/dev/shm is not writable");
        try (var p =
                new TestEngine(SHAPE, KvRole.PRODUCER, "p", Map.of("cross_memory", crossMemory))) {
            var memory = p.workers.getFirst().provideMemory(1 << 16);
            assertThat(memory.isPresent()).isEqualTo(crossMemory);
            p.workers.getFirst().close();
            memory.ifPresent(one -> {
                one.range().segment().fill((byte) 1); // the engine's until it frees it
                one.close();
            });
        }
    }

    @ParameterizedTest
    @CsvSource({"true, cma", "false, tcp"})
    void theOptionDecidesAndTheReportSaysIt(boolean crossMemory, String path) throws IOException {
        if (crossMemory) {
            CrossMemorySupport.assumePermittedWithChildren();
        }
        try (var p =
                        new TestEngine(
                                SHAPE, KvRole.PRODUCER, "p", Map.of("cross_memory", crossMemory));
                var d = new ChildEngine(KvRole.CONSUMER, "d", 0)) {
            d.hear("READY ");
            var holds = new ArrayList<TransferId>();
            for (int i = 0; i < REQUESTS; i++) {
                var name = "r" + i;
                d.tell("pull %s p %s %d %d", p.bootstrap, name, i, i * BLOCKS_PER_REQUEST);
                var request =
                        p.request(
                                name, PROMPT_TOKENS, i * BLOCKS_PER_REQUEST, decodeElsewhere(name));
                holds.add(p.prefill(request, i));
            }
            for (var hold : holds) {
                assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
                assertThat(d.hear("r")).endsWith("Completed");
            }
            assertThat(p.stats.counters().getOrDefault("mooncake_num_transfers_over_" + path, 0L))
                    .isEqualTo(REQUESTS);
            assertThat(p.stats.counters().getOrDefault("mooncake_num_successful_transfers", 0L))
                    .isEqualTo(REQUESTS);
        }
    }
}
