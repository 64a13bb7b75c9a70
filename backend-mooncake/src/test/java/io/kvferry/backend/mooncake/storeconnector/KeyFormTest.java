// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.storeconnector.keys.BlockHashes;
import io.kvferry.backend.mooncake.storeconnector.keys.BlockKeys;
import io.kvferry.backend.mooncake.storeconnector.keys.BlockNames;
import io.kvferry.backend.mooncake.storeconnector.keys.KeyForm;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;

import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

class KeyFormTest {
    private static final String MODEL = "/models/test-model/";

    private static EngineInfo engine(int tp, int pp, int kvHeads, String salt, int groups) {
        var format = new KvFormat.Heads(DType.FLOAT16, KvLayout.LBNHC, kvHeads, 8);
        var all =
                IntStream.range(0, groups)
                        .mapToObj(index ->
                                new KvCacheGroup(
                                        index,
                                        KvCacheGroup.Kind.FULL_ATTENTION,
                                        format,
                                        List.of("l" + index),
                                        TokensRequest.BLOCK,
                                        512))
                        .toList();
        return new EngineInfo(
                MODEL,
                new CacheNamespace("m", "r", DType.FLOAT16, KvLayout.LBNHC, 1, 16, tp, pp, salt),
                new KvCacheSpec(all, 64),
                tp * pp,
                0,
                1);
    }

    private static BlockKeys keys(EngineInfo engine, Map<String, Object> more) {
        var raw = new HashMap<String, Object>(more);
        raw.putIfAbsent("key_form", "vllm");
        return new BlockKeys(engine, StoreOptions.SCHEMA.read("test", raw));
    }

    private static BlockHashes hashes(EngineInfo engine) {
        var options = StoreOptions.SCHEMA.read("test", Map.of("key_form", "vllm"));
        return KeyForm.of(options, engine).hashes(options, engine, null).get();
    }

    /// Seen of vLLM 0.33.0: model path ".../test-model/", one rank, blocks of 16, tokens 100 to
    /// 169.
    @Test
    void keysAreThoseThatVllmWasSeenToUse() {
        var engine = engine(1, 1, 2, "", 1);
        var request = TokensRequest.of("r", 100, 170);
        var names = new BlockNames(keys(engine, Map.of()), hashes(engine));
        assertThat(names.count(request)).isEqualTo(4);
        var all = new ArrayList<String>();
        for (String[] ofBlock : names.of(request, 0, 4)) {
            all.addAll(List.of(ofBlock));
        }
        String start = "test-model@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@";
        assertThat(all)
                .containsExactly(
                        start + "605fd9e311c0890137f4c7df65be59449fb378632eecf434d1ecdf87c874fd55",
                        start + "f1a08810157991d5280c49952540afc2feab260cd65a24bb2e94951059393917",
                        start + "dc5a0111b9f2919d4789af4cfceb558c50750d1cc0f56692144e9e182eba6c69",
                        start + "6fd81c2e1686f99969e979feeb8ad285f2639d17056dbe486c7227160ecd624a");
    }

    @Test
    void ranksStagesPrefixAndGroupNamesAreThoseOfVllm() {
        var engine = engine(2, 2, 2, "", 1);
        var keys = keys(engine, Map.of("cache_prefix", "depA"));
        var hash = TokensRequest.of("r", 0, 16).blockHash(0);
        assertThat(keys.all(hash))
                .containsExactly(
                        "depA@test-model@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@" + hash.hex(),
                        "depA@test-model@tp_rank:1@pcp0@dcp0@pp_rank:0@group:0@" + hash.hex(),
                        "depA@test-model@tp_rank:0@pcp0@dcp0@pp_rank:1@group:0@" + hash.hex(),
                        "depA@test-model@tp_rank:1@pcp0@dcp0@pp_rank:1@group:0@" + hash.hex());
        assertThat(keys.groupOf(hash))
                .isEqualTo("vllm-mooncake-store:depA@test-model@" + hash.hex());
        assertThat(keys.start()).isEqualTo("depA@test-model@");
    }

    @Test
    void kvferrysFormIsTheDefaultAndTellsLayoutsApart() {
        var keys = new BlockKeys(engine(1, 1, 2, "", 1), StoreOptions.SCHEMA.read("t", Map.of()));
        assertThat(keys.start()).startsWith("test-model@kvferry:");
    }

    /// vLLM's key does not say which bytes these are, or another rank has them.
    @Test
    void whatVllmStoresOtherwiseIsRefused() {
        refused(engine(1, 1, 2, "", 2), "one cache group");
        refused(engine(4, 1, 2, "", 1), "split evenly over 4 ranks");
        refused(engine(1, 1, 2, "salt", 1), "salt");
    }

    private static void refused(EngineInfo engine, String why) {
        assertThatThrownBy(() -> keys(engine, Map.of()))
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("key_form vllm")
                .hasMessageContaining(why);
    }
}
