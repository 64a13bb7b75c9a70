// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.vllm;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.disk.DiskConnectorProvider;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.exchange.CacheExchange;
import io.kvferry.spi.exchange.CacheExchange.Copied;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.RankInfo;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

class ExampleExchangeTest {
    private static final int BLOCK = 16;
    private static final KvCacheGroup GROUP =
            new KvCacheGroup(
                    0,
                    KvCacheGroup.Kind.FULL_ATTENTION,
                    new KvFormat.Heads(DType.FLOAT32, KvLayout.LBNHC, 1, 1),
                    List.of("layer"),
                    BLOCK,
                    2L * BLOCK * 4);
    private static final KvCacheSpec CACHE = new KvCacheSpec(List.of(GROUP), 8);
    private static final CacheNamespace NAMESPACE =
            new CacheNamespace("m", "test", DType.FLOAT32, KvLayout.LBNHC, 1, BLOCK, 1, 1, "");
    private static final int[] TOKENS = IntStream.range(0, 40).toArray();
    private static final CacheExchange.Prompt PROMPT =
            new CacheExchange.Prompt(
                    TOKENS,
                    List.of(),
                    List.of(new BlockHash(1, 1, 1, 1), new BlockHash(2, 2, 2, 2)));

    @TempDir Path root;

    private CacheExchange open(Map<String, Object> more, RankInfo rank) {
        return open(more, rank, CACHE);
    }

    private CacheExchange open(Map<String, Object> more, RankInfo rank, KvCacheSpec cache) {
        var provider = new DiskConnectorProvider();
        var extra = new HashMap<String, Object>(more);
        extra.put("shared_storage_path", root.resolve("store").toString());
        extra.put("reserve", 0);
        var config = ConnectorConfig.of(provider.name(), KvRole.BOTH, "test", extra);
        var context =
                new WorkerContext(
                        "disk",
                        config,
                        provider.options().read("test", extra),
                        new EngineInfo("m", NAMESPACE, cache, rank.worldSize(), 0, 0),
                        rank,
                        HostServices.NONE);
        return provider.openExchange(
                context, provider.exchangeFormats().getFirst(), root.resolve("vllm"));
    }

    private CacheExchange open() {
        return open(Map.of(), RankInfo.SINGLE);
    }

    private ExampleFolder folder() {
        return new ExampleFolder(root.resolve("vllm"), CACHE, NAMESPACE);
    }

    private static List<List<MemorySegment>> blocks(int fill) {
        return IntStream.range(0, 2)
                .mapToObj(i ->
                        List.of(
                                Arena.ofAuto()
                                        .allocate(GROUP.blockBytes())
                                        .fill((byte) (fill + i))))
                .toList();
    }

    @Test
    void movesPromptsIntoTheBlockStoreAndBack() throws Exception {
        String name = ExampleFolder.digest(TOKENS, 32, List.of());
        folder().write(name, 32, blocks(5));
        try (var exchange = open()) {
            assertThat(exchange.importPrompt(PROMPT, deadline())).isEqualTo(new Copied(name, 2, 2));
            assertThat(exchange.importPrompt(PROMPT, deadline())).isEqualTo(new Copied(name, 2, 0));
        }
        Files.move(root.resolve("vllm"), root.resolve("gone"));
        assertThat(folder().holds(name, 32)).isFalse();
        try (var exchange = open()) {
            assertThat(exchange.exportPrompt(PROMPT, deadline())).isEqualTo(new Copied(name, 2, 2));
            assertThat(exchange.exportPrompt(PROMPT, deadline())).isEqualTo(new Copied(name, 2, 0));
        }
        var target = blocks(0);
        folder().read(name, 32, 0, target);
        assertThat(target.get(1).getFirst().mismatch(blocks(5).get(1).getFirst())).isEqualTo(-1);
    }

    @Test
    void leavesNothingOfAPromptThatIsNotThere() {
        try (var exchange = open()) {
            assertThatThrownBy(() -> exchange.importPrompt(PROMPT, deadline()))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.MISS));
            assertThatThrownBy(() -> exchange.exportPrompt(PROMPT, deadline()))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.MISS));
            assertThat(Files.exists(root.resolve("vllm"))).isFalse();
        }
    }

    @Test
    void refusesSeveralRanks() {
        assertThatThrownBy(() -> open(Map.of(), new RankInfo(0, 2, 0, 2, 0, 1)))
                .hasMessageContaining("one rank");
    }

    /// Before it opens the store, whose threads nobody would end.
    @Test
    void opensNoStoreForARunThatIsTooLong() {
        int heads = 4096; // a block has 512 KiB
        var large =
                new KvCacheGroup(
                        0,
                        KvCacheGroup.Kind.FULL_ATTENTION,
                        new KvFormat.Heads(DType.FLOAT32, KvLayout.LBNHC, heads, 1),
                        List.of("layer"),
                        BLOCK,
                        2L * BLOCK * heads * 4);
        var cache = new KvCacheSpec(List.of(large), 8);
        assertThatThrownBy(() -> open(Map.of("run_blocks", 1024), RankInfo.SINGLE, cache))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.BAD_CONFIG));
        assertThat(root.resolve("store")).doesNotExist();
    }

    /// From the call on: a constant would age while other tests run.
    private static Deadline deadline() {
        return Deadline.in(Duration.ofSeconds(60));
    }
}
