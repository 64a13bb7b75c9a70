// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.wire;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.msgpack.core.MessagePack;
import org.msgpack.core.MessagePacker;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Random;
import java.util.stream.Stream;

class XferCodecTest {
    private static final long LAYOUT = 0x123456789abcdef1L;

    static List<byte[]> requests() {
        return List.of(
                Vectors.G2,
                Vectors.G3,
                Vectors.G3B,
                Vectors.G4,
                Vectors.G5_GOLDEN,
                Vectors.R1,
                Vectors.R1_NO_LAYOUT,
                Vectors.R2,
                Vectors.R3,
                Vectors.R4,
                Vectors.R5);
    }

    static List<byte[]> responses() {
        return List.of(
                Vectors.S1,
                Vectors.S2,
                Vectors.S3,
                Vectors.FINISH_OK,
                Vectors.ERROR_X,
                Vectors.CONTINUE);
    }

    @ParameterizedTest
    @MethodSource("requests")
    void readsAndRewritesRequestsByteForByte(byte[] vector) {
        assertThat(XferEncoder.request(XferDecoder.request(vector))).isEqualTo(vector);
    }

    @ParameterizedTest
    @MethodSource("responses")
    void readsAndRewritesResponsesByteForByte(byte[] vector) {
        assertThat(XferEncoder.response(XferDecoder.response(vector))).isEqualTo(vector);
    }

    @Test
    void writesTheRequestOfVllm0330() {
        assertThat(XferEncoder.request(sample(Generation.G7, 1))).isEqualTo(Vectors.R1);
        assertThat(XferEncoder.request(sample(Generation.G7, 1).shortForm())).isEqualTo(Vectors.R2);
    }

    @Test
    void understandsEveryFieldOfTheLargestVector() {
        var read = XferDecoder.request(Vectors.R4);
        assertThat(read.generation()).isEqualTo(Generation.G7);
        assertThat(read.segmentName()).isEqualTo("10.0.0.3:15488");
        assertThat(read.layoutId()).isEqualTo(LAYOUT);
        assertThat(read.reqBlocks()).containsOnlyKeys("cmpl-1");
        assertThat(asked(read, "cmpl-1").groups())
                .containsExactly(new int[] {20, 21}, new int[] {300}, new int[] {7});
        var regions = read.regions();
        assertThat(regions.problem(Generation.G7)).isEmpty();
        assertThat(regions.baseAddresses()).containsExactly(0x7f0000001000L, 0x7f0000201000L);
        assertThat(regions.blockLengths()).containsExactly(65536, 8192);
        assertThat(regions.kvBlockLengths()).containsExactly(65536, 8000);
        assertThat(regions.layerNames())
                .containsExactly("model.layers.0.self_attn.attn", "model.layers.2.mixer");
        assertThat(regions.layerIndices()).containsExactly(0, 2);
        assertThat(regions.groups()).containsExactly(-1, 2);
        assertThat(regions.sharedGroups()).containsExactly(new int[] {0, 1}, new int[] {2});
        assertThat(regions.rowOffsets()).containsExactly(0, -1);
        assertThat(asked(XferDecoder.request(Vectors.R5), "cmpl-1").releaseOnly()).isTrue();
    }

    @Test
    void olderGenerationsCarryNoNewerField() {
        var six = XferDecoder.request(XferEncoder.request(sample(Generation.G6, 2)));
        assertThat(six.generation()).isEqualTo(Generation.G6);
        assertThat(six.remotePpSize()).isEqualTo(2);
        assertThat(six.layoutId()).isZero();
        assertThat(six.regions().rowOffsets()).isEmpty();
        var five = XferDecoder.request(XferEncoder.request(sample(Generation.G5, 2)));
        assertThat(five.generation()).isEqualTo(Generation.G5);
        assertThat(five.remotePpSize()).isEqualTo(1);
        assertThat(five.regions().groups()).containsExactly(0);
        var four = XferDecoder.request(XferEncoder.request(sample(Generation.G4, 2)));
        assertThat(four.generation()).isEqualTo(Generation.G4);
        assertThat(four.remotePpSize()).isEqualTo(1);
        assertThat(four.regions().groups()).isEmpty();
        assertThat(four.regions().layerNames()).hasSize(1);
        var threeB = XferDecoder.request(XferEncoder.request(sample(Generation.G3B, 1)));
        assertThat(threeB.generation()).isEqualTo(Generation.G3B);
        assertThat(threeB.regions().layerNames()).isEmpty();
        var two = XferDecoder.request(XferEncoder.request(sample(Generation.G2, 1)));
        assertThat(two.generation()).isEqualTo(Generation.G2);
        assertThat(two.regions().blockLengths()).isEmpty();
    }

    @Test
    void understandsEveryFieldOfTheOlderVectors() {
        for (var vector : List.of(Vectors.G2, Vectors.G3, Vectors.G3B, Vectors.G4)) {
            var read = XferDecoder.request(vector);
            assertThat(read.segmentName()).isEqualTo("10.0.0.3:15488");
            assertThat(read.remoteTpSize()).isEqualTo(2);
            assertThat(read.remoteTpRank()).isEqualTo(1);
            assertThat(read.regions().baseAddresses())
                    .containsExactly(0x7f0000001000L, 0x7f0000101000L);
            assertThat(read.regions().problem(read.generation())).isEmpty();
            assertThat(asked(read, "cmpl-1").transferId()).isEqualTo("xfer-1");
            assertThat(asked(read, "cmpl-1").groups().getFirst()).containsExactly(20, 21);
            assertThat(asked(read, "cmpl-2").transferId()).isEqualTo("xfer-2");
            assertThat(asked(read, "cmpl-2").releaseOnly()).isTrue();
        }
        var two = XferDecoder.request(Vectors.G2);
        assertThat(two.generation()).isEqualTo(Generation.G2);
        assertThat(two.regions().blockLengths()).isEmpty();
        var three = XferDecoder.request(Vectors.G3);
        assertThat(three.generation()).isEqualTo(Generation.G3);
        assertThat(three.regions().blockLengths()).containsExactly(4096, 2048);
        assertThat(three.regions().kvBlockLengths()).containsExactly(4096, 2048);
        var threeB = XferDecoder.request(Vectors.G3B);
        assertThat(threeB.generation()).isEqualTo(Generation.G3B);
        assertThat(asked(threeB, "cmpl-1").groups().getLast()).containsExactly(300);
        var four = XferDecoder.request(Vectors.G4);
        assertThat(four.generation()).isEqualTo(Generation.G4);
        assertThat(four.regions().kvBlockLengths()).containsExactly(4096, 2048);
        assertThat(four.regions().layerIndices()).containsExactly(0, 1);
        assertThat(four.regions().layerNames()).hasSize(2);
    }

    @Test
    void aFormBetweenTwoGenerationsIsRefused() throws IOException {
        refused(older("block_ids", List.of(), "request_ids", List.of()), "G1 are not spoken");
        refused(older("kv_block_lens", List.of(64)), "Object missing required field `block_lens`");
        for (var field :
                List.of(
                        "registered_group_indices",
                        "registered_shared_group_ids",
                        "registered_row_offsets")) {
            refused(
                    older("block_lens", List.of(64), field, List.of()),
                    "Object missing required field `kv_block_lens`");
        }
        refused(
                older("block_lens", List.of(64), "layout_id", 1),
                "Object missing required field `kv_block_lens`");
        refused(
                older("registered_layer_names", List.of("l")),
                "Object missing required field `block_lens`");
        var flat = Map.of("a", List.of("x", List.of(3, 4)));
        refused(
                older(
                        "block_lens",
                        List.of(64),
                        "registered_layer_names",
                        List.of("l"),
                        "req_blocks",
                        flat),
                "Expected `array`, got `int` - at `req_blocks`");
        refused(
                older("block_lens", List.of(64), "kv_block_lens", List.of(64), "req_blocks", flat),
                "Expected `array`, got `int` - at `req_blocks`");
        refused(
                older("req_blocks", Map.of("a", List.of("x", List.of(List.of(3))))),
                "Expected `int`, got `array` - at `req_blocks`");
        refused(
                older(
                        "block_lens",
                        List.of(64),
                        "req_blocks",
                        Map.of(
                                "a",
                                List.of("x", List.of(3)),
                                "b",
                                List.of("y", List.of(List.of(3))))),
                "at `req_blocks`");
    }

    /// The required fields of G2, and `more`.
    private static byte[] older(Object... more) throws IOException {
        var pairs = new LinkedHashMap<Object, Object>();
        pairs.put("remote_hostname", "h");
        pairs.put("remote_port", 7);
        pairs.put("remote_tp_size", 1);
        pairs.put("remote_tp_rank", 0);
        pairs.put("req_blocks", Map.of());
        pairs.put("kv_caches_base_addr", List.of(4096));
        for (int i = 0; i < more.length; i += 2) {
            pairs.put(more[i], more[i + 1]);
        }
        return map(
                pairs.entrySet().stream()
                        .flatMap(entry -> Stream.of(entry.getKey(), entry.getValue()))
                        .toArray());
    }

    @Test
    void severalGroupsDoNotFitAFlatList() {
        var sample = sample(Generation.G3, 1);
        var message =
                new XferMetadata(
                        Generation.G3,
                        "h",
                        1,
                        1,
                        0,
                        Map.of("a", new RequestBlocks("x", List.of(new int[] {1}, new int[] {2}))),
                        sample.regions(),
                        1,
                        0,
                        Optional.empty());
        assertThatThrownBy(() -> XferEncoder.request(message))
                .isInstanceOf(IllegalArgumentException.class)
                .hasMessageContaining("not 2");
    }

    /// What a hold waits for is the product of two of them.
    @ParameterizedTest
    @ValueSource(ints = {1 << 30, Integer.MAX_VALUE})
    void refusesMoreRanksThanAnyEngineHas(int size) {
        var regions = WireRegions.NONE;
        for (int[] sizes : new int[][] {{size, 1}, {1, size}}) {
            assertThatThrownBy(() ->
                            new XferMetadata(
                                    Generation.G7,
                                    "h",
                                    1,
                                    sizes[0],
                                    0,
                                    Map.of(),
                                    regions,
                                    sizes[1],
                                    0,
                                    Optional.empty()))
                    .isInstanceOf(IllegalArgumentException.class)
                    .hasMessageContaining("inconsistent ranks");
        }
    }

    @Test
    void carriesTheExtensionOfKvferryPeers() {
        var grants = Map.of("cmpl-1", -1L, "cmpl-2", 5L);
        var plain = sample(Generation.G7, 1);
        var message =
                new XferMetadata(
                        Generation.G7,
                        "h",
                        1,
                        1,
                        0,
                        plain.reqBlocks(),
                        plain.regions(),
                        1,
                        0,
                        Optional.of(
                                new PeerExtension(
                                        "ns", "LBNHC-1", "abc", 1234, grants, "reader", "3/1")));
        assertThat(XferDecoder.request(XferEncoder.request(message)).extension())
                .contains(new PeerExtension("ns", "LBNHC-1", "abc", 1234, grants, "reader", "3/1"));
    }

    @Test
    void keepsAddressesAboveTheSignBit() {
        var plain = sample(Generation.G7, 1);
        var regions =
                new WireRegions(
                        new long[] {-4096},
                        new long[] {64},
                        new long[] {64},
                        List.of("l"),
                        new int[] {0},
                        new int[] {0},
                        List.of(),
                        new long[0]);
        var message =
                new XferMetadata(
                        Generation.G7,
                        "h",
                        1,
                        1,
                        0,
                        plain.reqBlocks(),
                        regions,
                        1,
                        0,
                        Optional.empty());
        assertThat(XferDecoder.request(XferEncoder.request(message)).regions().baseAddresses())
                .containsExactly(-4096);
    }

    @Test
    void refusesOtherTypesThanTheFieldsHave() throws IOException {
        refused(map("remote_hostname", new byte[] {65}), "remote_hostname");
        refused(map("remote_port", 1.5), "remote_port");
        refused(map("remote_port", true), "remote_port");
        refused(
                map(
                        "remote_port",
                        70_000,
                        "remote_hostname",
                        "h",
                        "remote_tp_size",
                        1,
                        "remote_tp_rank",
                        0,
                        "req_blocks",
                        Map.of(),
                        "kv_caches_base_addr",
                        List.of(),
                        "block_lens",
                        List.of(),
                        "kv_block_lens",
                        List.of()),
                "remote_port");
        refused(map("req_blocks", List.of()), "req_blocks");
        refused(map("req_blocks", Map.of("a", List.of("x"))), "req_blocks");
        refused(
                map("req_blocks", Map.of("a", List.of("x", List.of(List.of(-1))))),
                "negative block id");
        refused(
                map("req_blocks", Map.of("a", List.of("x", List.of(List.of(1L << 40))))),
                "req_blocks");
        refused(map("remote_hostname", "h", "remote_port", 1), "remote_tp_size");
        refused(new byte[] {(byte) 0x90}, "Expected `object`");
        refused(new byte[] {}, "Expected `object`");
        assertThatThrownBy(() -> XferDecoder.response(map("status", 9)))
                .hasMessageContaining("Invalid enum value 9");
        assertThatThrownBy(() -> XferDecoder.response(map("ok_reqs", List.of("a"))))
                .hasMessageContaining("`status`");
    }

    @Test
    void acceptsNilForTheOptionalFieldsOfAResponse() {
        var bytes =
                HexFormat.of()
                        .parseHex(
                                "84a673746174757300a76f6b5f72657173c0a86572725f72657173c0a76572725f6d7367c0");
        assertThat(XferDecoder.response(bytes))
                .isEqualTo(
                        new XferResponse(XferResponse.Status.FINISH, List.of(), List.of(), "", 0));
    }

    @Test
    void refusesDuplicateKeysAndTrailingBytes() {
        assertThatThrownBy(() ->
                        XferDecoder.response(
                                HexFormat.of().parseHex("82a673746174757300a673746174757301")))
                .hasMessageContaining("duplicate key");
        assertThatThrownBy(
                        () -> XferDecoder.response(HexFormat.of().parseHex("81a67374617475730000")))
                .hasMessageContaining("1 bytes follow");
    }

    @Test
    void refusesEveryTruncationWithItsCode() {
        for (var vector : List.of(Vectors.R4, Vectors.G4, Vectors.G2)) {
            for (int length = 0; length < vector.length; length++) {
                var cut = Arrays.copyOf(vector, length);
                assertThatThrownBy(() -> XferDecoder.request(cut))
                        .isInstanceOfSatisfying(
                                KvFerryException.class,
                                e -> assertThat(e.code()).isEqualTo(ErrorCode.PROTOCOL));
            }
        }
    }

    @Test
    void announcedCountsCostNoMemory() {
        // 2^31-1 elements and a 2 GiB string in a few bytes
        refused(HexFormat.of().parseHex("81aa626c6f636b5f6c656e73dd7fffffff"), "2147483647");
        refused(HexFormat.of().parseHex("81aa626c6f636b5f6c656e73ddffffffff"), "block_lens");
        refused(
                HexFormat.of().parseHex("81af72656d6f74655f686f73746e616d65db7fffffff41"),
                "remote_hostname");
        refused(HexFormat.of().parseHex("df7fffffff"), "2147483647");
    }

    /// They are kept with each of a decoder's requests.
    @ParameterizedTest
    @ValueSource(
            strings = {
                "remote_hostname",
                "kvferry_namespace",
                "kvferry_layout",
                "kvferry_incarnation",
                "kvferry_reader",
                "kvferry_worker"
            })
    void refusesNamesThatNothingHas(String field) throws IOException {
        refused(map(field, "h".repeat(1025)), "longer than 1024 characters - at `" + field + "`");
    }

    /// 16 MiB of empty lists became 335 MB of heap.
    @Test
    void refusesMoreRequestsAndListsThanADecoderHas() throws IOException {
        refused(requests(1, 1 << 17 | 1), "announces 131073 items");
        refused(requests(3, 100_000), "more than 262144 lists of blocks");
        refused(requests(1 << 17 | 1, 0), "announces 131073 items");
        assertThatThrownBy(() -> XferDecoder.request(requests(2, 100_000)))
                .as("as far as it is read")
                .hasMessageContaining("missing required field");
    }

    /// The beginning of a message with so many requests for so many empty lists each.
    private static byte[] requests(int count, int lists) throws IOException {
        try (var out = MessagePack.newDefaultBufferPacker()) {
            out.packMapHeader(1).packString("req_blocks").packMapHeader(count);
            for (int i = 0; i < count; i++) {
                out.packString("r" + i).packArrayHeader(2).packString("x").packArrayHeader(lists);
                for (int list = 0; list < lists; list++) {
                    out.packArrayHeader(0);
                }
            }
            return out.toByteArray();
        }
    }

    /// As long as they wait, all of it is kept.
    @Test
    void knowsWhatItsRequestsTakeOfTheHeap() {
        var none = sample(Generation.G7, 1);
        var blocks = new LinkedHashMap<String, RequestBlocks>();
        for (int i = 0; i < 10; i++) {
            blocks.put("r" + i, new RequestBlocks("x", List.of(new int[1000], new int[0])));
        }
        var many =
                new XferMetadata(
                        none.generation(),
                        none.remoteHostname(),
                        none.remotePort(),
                        none.remoteTpSize(),
                        none.remoteTpRank(),
                        blocks,
                        none.regions(),
                        none.remotePpSize(),
                        none.layoutId(),
                        none.extension());
        assertThat(many.heapBytes()).isBetween(10 * (4000L + 16 + 500), 10 * (4000L + 2000));
    }

    @Test
    void randomDamageNeverEscapesTheErrorCode() {
        long seed = System.nanoTime();
        var random = new Random(seed);
        for (int round = 0; round < 20_000; round++) {
            var bytes = (round % 2 == 0 ? Vectors.R4 : Vectors.S2).clone();
            for (int n = 1 + random.nextInt(4); n > 0; n--) {
                bytes[random.nextInt(bytes.length)] = (byte) random.nextInt();
            }
            try {
                if (round % 2 == 0) {
                    XferDecoder.request(bytes);
                } else {
                    XferDecoder.response(bytes);
                }
            } catch (KvFerryException e) {
                assertThat(e.code())
                        .as("seed %d round %d", seed, round)
                        .isEqualTo(ErrorCode.PROTOCOL);
            }
        }
    }

    private static RequestBlocks asked(XferMetadata message, String request) {
        return Objects.requireNonNull(message.reqBlocks().get(request));
    }

    private static void refused(byte[] message, String text) {
        assertThatThrownBy(() -> XferDecoder.request(message))
                .hasMessageContaining(text)
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.PROTOCOL));
    }

    static XferMetadata sample(Generation generation, int ppSize) {
        var regions =
                new WireRegions(
                        new long[] {0x7f0000001000L},
                        new long[] {4096},
                        new long[] {4096},
                        List.of("model.layers.0.self_attn.attn"),
                        new int[] {0},
                        new int[] {0},
                        List.of(new int[] {0}),
                        new long[] {-1});
        var blocks = new RequestBlocks("xfer-1", List.of(new int[] {20, 21}));
        return new XferMetadata(
                generation,
                "10.0.0.3",
                15488,
                1,
                0,
                Map.of("cmpl-1", blocks),
                regions,
                ppSize,
                LAYOUT,
                Optional.empty());
    }

    private static byte[] map(Object... pairs) throws IOException {
        var out = new ByteArrayOutputStream();
        try (var packer = MessagePack.newDefaultPacker(out)) {
            packer.packMapHeader(pairs.length / 2);
            for (var item : pairs) {
                pack(packer, item);
            }
        }
        return out.toByteArray();
    }

    private static void pack(MessagePacker packer, Object item) throws IOException {
        switch (item) {
            case String text -> packer.packString(text);
            case Integer number -> packer.packInt(number);
            case Long number -> packer.packLong(number);
            case Double number -> packer.packDouble(number);
            case Boolean flag -> packer.packBoolean(flag);
            case byte[] bytes -> packer.packBinaryHeader(bytes.length).writePayload(bytes);
            case List<?> list -> {
                packer.packArrayHeader(list.size());
                for (var element : list) {
                    pack(packer, element);
                }
            }
            case Map<?, ?> map -> {
                packer.packMapHeader(map.size());
                for (var entry : map.entrySet()) {
                    pack(packer, entry.getKey());
                    pack(packer, entry.getValue());
                }
            }
            default -> throw new IllegalArgumentException(item.toString());
        }
    }
}
