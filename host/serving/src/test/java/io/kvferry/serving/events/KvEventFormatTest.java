// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.events;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.RequestView.ItemKey;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.observe.CacheEvent;

import org.junit.jupiter.api.Test;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Random;
import java.util.stream.LongStream;

/// The bytes of KV events beside those of vLLM, which msgspec wrote from the structs of vLLM 0.33.0
/// (and of the releases whose events are arrays).
class KvEventFormatTest {
    /// Two BlockStored, a BlockRemoved, an AllBlocksCleared.
    private static final String VLLM =
            "93cb41d954fc4010000094de0009a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392cffedcba987654321007b1706172656e745f626c6f636b5f68617368c0a9746f6b656e"
                    + "5f696473940102cd012cce00011170aa626c6f636b5f73697a6502a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c0a967726f75705f69647800de0009a474797065ab426c"
                    + "6f636b53746f726564ac626c6f636b5f68617368657391cf7fffffffffffffffb1706172656e745f626c6f636b5f6861736807a9746f6b656e5f696473920506aa626c6f636b5f73697a6502a76c6f72"
                    + "615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c0a967726f75705f6964780084a474797065ac426c6f636b52656d6f766564ac626c6f636b5f6861736865739107a66d656469756da3"
                    + "475055a967726f75705f6964780081a474797065b0416c6c426c6f636b73436c656172656400";

    /// Hashes of 32 bytes, another medium, an adapter, extra keys.
    private static final String VLLM_OTHERS =
            "93cb3ff800000000000091de0009a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391c4200101010101010101010101010101010101010101010101010101010101010101b1"
                    + "706172656e745f626c6f636b5f68617368c4200202020202020202020202020202020202020202020202020202020202020202a9746f6b656e5f6964739109aa626c6f636b5f73697a6501a76c6f7261"
                    + "5f6964c0a66d656469756da3435055a96c6f72615f6e616d65a161aa65787472615f6b6579739191a473616c74c0";

    /// The same kinds of events as arrays.
    private static final String VLLM_ARRAYS =
            "93cb40040000000000009398ab426c6f636b53746f7265649103c092010202c0a3475055c093ac426c6f636b52656d6f7665649103a347505591b0416c6c426c6f636b73436c656172656400";

    private static BlockHash hash(long last) {
        return new BlockHash(1, 2, 3, last);
    }

    private static byte[] bytes(String hex) {
        return HexFormat.of().parseHex(hex);
    }

    @Test
    void writesWhatVllmWrites() {
        var first =
                new CacheEvent.Stored(
                        "engine",
                        Tier.DEVICE,
                        0,
                        Optional.empty(),
                        List.of(hash(0xfedcba9876543210L), hash(7)),
                        2,
                        new int[] {1, 2, 300, 70_000});
        var second =
                new CacheEvent.Stored(
                        "engine",
                        Tier.DEVICE,
                        0,
                        Optional.of(hash(7)),
                        List.of(hash(Long.MAX_VALUE)),
                        2,
                        new int[] {5, 6});
        var written =
                KvEventWriter.write(
                        List.of(
                                first,
                                second,
                                new CacheEvent.Removed("engine", Tier.DEVICE, List.of(hash(7))),
                                new CacheEvent.Cleared("engine")),
                        1_700_000_000.25);
        // msgspec writes the size of a large struct in two bytes, also when one is enough.
        assertThat(HexFormat.of().formatHex(written)).isEqualTo(VLLM.replace("de0009", "89"));
        assertThat(KvEventWriter.hasForm(new CacheEvent.Cleared("DiskConnector"))).isFalse();
        assertThat(KvEventWriter.hasForm(new CacheEvent.ItemsStored("e", Tier.HOST, List.of("x"))))
                .isFalse();
    }

    private static CacheEvent.Stored stored(
            Optional<BlockHash> parent, List<List<ItemKey>> extraKeys, String salt) {
        var blocks = extraKeys.isEmpty() ? List.of(hash(7)) : hashes(extraKeys.size());
        return new CacheEvent.Stored(
                "engine",
                Tier.DEVICE,
                0,
                parent,
                blocks,
                1,
                new int[blocks.size()],
                extraKeys,
                salt);
    }

    private static List<ItemKey> item(int offset) {
        return List.of(new ItemKey("item", offset));
    }

    private static List<BlockHash> hashes(int count) {
        return LongStream.range(0, count).mapToObj(KvEventFormatTest::hash).toList();
    }

    private static List<KvEvent> writtenAndRead(CacheEvent event) {
        return KvEventReader.read(KvEventWriter.write(List.of(event), 1));
    }

    /// vLLM names what the hash of a block covers beside tokens, and leaves the field out where
    /// there is nothing.
    @Test
    void writesExtraKeysAsVllmDoes() {
        var salted = stored(Optional.empty(), List.of(List.of(), List.of()), "salt");
        var hex = HexFormat.of().formatHex(KvEventWriter.write(List.of(salted), 1));
        assertThat(hex).contains("6c6f72615f6e616d65c0aa65787472615f6b6579739291a473616c74c0a967");
        var plain = stored(Optional.empty(), List.of(), "");
        assertThat(HexFormat.of().formatHex(KvEventWriter.write(List.of(plain), 1)))
                .doesNotContain("65787472615f6b657973");
        // Items are pairs, so that none is taken for a salt: [["item", 3], "salt"], [["item", -1]]
        var items = stored(Optional.empty(), List.of(item(3), item(-1)), "salt");
        assertThat(HexFormat.of().formatHex(KvEventWriter.write(List.of(items), 1)))
                .contains("aa65787472615f6b657973929292a46974656d03a473616c749192a46974656dffa967");
    }

    @Test
    void readsTheSaltOfAPromptsFirstBlock() {
        var salted = stored(Optional.empty(), List.of(List.of(), List.of()), "salt");
        var read = (KvEvent.Stored) writtenAndRead(salted).getFirst();
        assertThat(read.salt()).isEqualTo("salt");
        assertThat(read.blocks()).containsExactly(0, 1);
        var alone = stored(Optional.empty(), List.of(), "salt");
        assertThat(((KvEvent.Stored) writtenAndRead(alone).getFirst()).salt()).isEqualTo("salt");
        var later =
                (KvEvent.Stored)
                        writtenAndRead(stored(Optional.of(hash(9)), List.of(), "")).getFirst();
        assertThat(later.salt()).isEmpty();
    }

    @Test
    void readsBlocksUpToTheFirstOneWithAnItem() {
        var items = List.of(List.<ItemKey>of(), List.<ItemKey>of(), item(0), List.<ItemKey>of());
        var read = (KvEvent.Stored) writtenAndRead(stored(Optional.empty(), items, "")).getFirst();
        assertThat(read.blocks()).containsExactly(0, 1);
        assertThat(read.tokens()).hasSize(2);
        assertThat(read.salt()).isEmpty();
        // As the first block of a prompt, it once was read as one of a tenant called "item".
        assertThat(writtenAndRead(stored(Optional.empty(), List.of(item(0)), ""))).isEmpty();
        assertThat(writtenAndRead(stored(Optional.of(hash(9)), List.of(item(0)), ""))).isEmpty();
        assertThat(writtenAndRead(stored(Optional.empty(), List.of(item(0)), "salt"))).isEmpty();
    }

    @Test
    void readsWhatVllmWrites() {
        var events = KvEventReader.read(bytes(VLLM));
        assertThat(events).hasSize(4);
        var first = (KvEvent.Stored) events.get(0);
        assertThat(first.blocks()).containsExactly(0xfedcba9876543210L, 7);
        assertThat(first.parent()).isEmpty();
        assertThat(first.tokens()).containsExactly(1, 2, 300, 70_000);
        assertThat(first.blockTokens()).isEqualTo(2);
        var second = (KvEvent.Stored) events.get(1);
        assertThat(second.parent()).isEqualTo(OptionalLong.of(7));
        assertThat(((KvEvent.Removed) events.get(2)).blocks()).containsExactly(7);
        assertThat(events.get(3)).isEqualTo(new KvEvent.Cleared());
    }

    @Test
    void readsEventsThatAreArrays() {
        var events = KvEventReader.read(bytes(VLLM_ARRAYS));
        assertThat(events).hasSize(3);
        assertThat(((KvEvent.Stored) events.get(0)).tokens()).containsExactly(1, 2);
        assertThat(((KvEvent.Removed) events.get(1)).blocks()).containsExactly(3);
    }

    @Test
    void skipsWhatIsNotInDeviceMemoryOrNeedsMoreThanTokens() {
        assertThat(KvEventReader.read(bytes(VLLM_OTHERS))).isEmpty();
        var gpu = VLLM_OTHERS.replace("a3435055", "a3475055");
        assertThat(KvEventReader.read(bytes(gpu))).as("adapter and extra keys").isEmpty();
        var noAdapter = gpu.replace("6e616d65a161", "6e616d65c0");
        assertThat(KvEventReader.read(bytes(noAdapter))).as("extra keys").isEmpty();
        var plain = noAdapter.replace("9191a473616c74", "91c0");
        var stored = (KvEvent.Stored) KvEventReader.read(bytes(plain)).getFirst();
        assertThat(stored.blocks()).containsExactly(0x0101010101010101L);
        assertThat(stored.parent()).isEqualTo(OptionalLong.of(0x0202020202020202L));
    }

    @Test
    void refusesWhatIsNoBatchWithAnError() {
        var whole = bytes(VLLM);
        for (int length = 0; length < whole.length; length++) {
            assertRefused(Arrays.copyOf(whole, length));
        }
        assertRefused(bytes("93cb3ff8000000000000ddffffffff"));
        assertRefused("not msgpack at all".getBytes(StandardCharsets.UTF_8));
        var random = new Random(5);
        for (int i = 0; i < 20_000; i++) {
            var mutant = whole.clone();
            for (int j = random.nextInt(4); j >= 0; j--) {
                mutant[random.nextInt(mutant.length)] = (byte) random.nextInt(256);
            }
            try {
                assertThat(KvEventReader.read(mutant)).isNotNull();
            } catch (KvFerryException e) {
                assertThat(e.code()).isEqualTo(ErrorCode.PROTOCOL);
            }
        }
    }

    private static void assertRefused(byte[] message) {
        assertThatThrownBy(() -> KvEventReader.read(message))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.PROTOCOL));
    }

    @Test
    void takesVllmsConfiguration() {
        assertThat(KvEventsConfig.of(Map.of())).isEmpty();
        assertThat(KvEventsConfig.of(Map.of("enable_kv_cache_events", true)))
                .hasValueSatisfying(config -> assertThat(config.endpoint().isLoopback()).isTrue());
        assertThat(KvEventsConfig.of(Map.of("enable_kv_cache_events", false))).isEmpty();
        assertThat(KvEventsConfig.of(Map.of("enable_kv_cache_events", true, "publisher", "null")))
                .isEmpty();
        var config =
                KvEventsConfig.of(
                                Map.of(
                                        "enable_kv_cache_events",
                                        true,
                                        "endpoint",
                                        "tcp://127.0.0.1:5557",
                                        "replay_endpoint",
                                        "tcp://*:5558",
                                        "buffer_steps",
                                        50L,
                                        "topic",
                                        "kv"))
                        .orElseThrow();
        assertThat(config.endpoint().isBound()).as("an address of this host").isTrue();
        assertThat(config.bufferSteps()).isEqualTo(50);
        assertThat(new ZmqAddress("tcp://192.0.2.7:5557").isBound()).isFalse();
        for (var wrong :
                List.of(
                        Map.<String, Object>of("endpiont", "tcp://*:1"),
                        Map.<String, Object>of("enable_kv_cache_events", "yes"),
                        Map.<String, Object>of("publisher", "kafka"),
                        Map.<String, Object>of("endpoint", "ipc://kv-events"),
                        Map.<String, Object>of("endpoint", "tcp://*:99999"),
                        Map.<String, Object>of("endpoint", "tcp://*:99999999999"),
                        Map.<String, Object>of("buffer_steps", 0L))) {
            assertThatThrownBy(() -> KvEventsConfig.of(wrong))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.BAD_CONFIG))
                    .hasMessageContaining(
                            wrong.keySet().iterator().next().replace("endpiont", "endpoint"));
        }
    }
}
