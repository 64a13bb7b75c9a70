// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.wire;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;

class WireTest {
    private static final String UNIQUE = "0123456789abcdef0123456789abcdef";
    private static final CacheShape SHAPE =
            new CacheShape("aa", "LBHNC/1", "float32", 0, 1, "2 layers bb");

    @ParameterizedTest
    @CsvSource({
        "'', ''",
        "cmpl-, -0",
        "chatcmpl-, ''",
        "cmpl-, -0-deadbeef",
        "'', :7",
        "x#y, :0:abc"
    })
    @DisplayName("P1 both addresses are read, whatever servers add")
    void readsBothAddressesWhateverServersAdd(String prefix, String suffix) {
        var id = "___prefill_addr_10.0.1.2:21001___decode_addr_10.0.1.3:22001_" + UNIQUE;
        var found = RequestAddresses.parse(prefix + id + suffix);
        assertThat(found).isPresent();
        assertThat(found.get().prefill()).isEqualTo(new PeerAddress("10.0.1.2", 21_001));
        assertThat(found.get().decode()).isEqualTo(new PeerAddress("10.0.1.3", 22_001));
        assertThat(found.get().transferId()).isEqualTo(id);
    }

    @Test
    @DisplayName("P2 addresses of IPv6, and names with underscores")
    void readsAddressesOfIpv6AndNamesWithUnderscores() {
        var six = "___prefill_addr_fe80::1:21001___decode_addr_[::1]:22001_" + UNIQUE;
        assertThat(RequestAddresses.parse(six).orElseThrow().decode())
                .isEqualTo(new PeerAddress("::1", 22_001));
        assertThat(RequestAddresses.parse(six).orElseThrow().prefill())
                .isEqualTo(new PeerAddress("fe80::1", 21_001));
        var named = "___prefill_addr_host_a:1___decode_addr_host_b:2_" + UNIQUE;
        assertThat(RequestAddresses.parse(named).orElseThrow().decode())
                .isEqualTo(new PeerAddress("host_b", 2));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "",
                "cmpl-1234",
                "___prefill_addr_h:1",
                "___decode_addr_h:1_0123456789abcdef0123456789abcdef",
                "___prefill_addr_h___decode_addr_h:1_0123456789abcdef0123456789abcdef",
                "___prefill_addr_h:0___decode_addr_h:1_0123456789abcdef0123456789abcdef",
                "___prefill_addr_h:1___decode_addr_h:70000_0123456789abcdef0123456789abcdef",
                "___prefill_addr_h:1___decode_addr_h:1_tooshort",
                "___prefill_addr_h/x:1___decode_addr_h:1_0123456789abcdef0123456789abcdef"
            })
    @DisplayName("P2 ids of another form name nobody")
    void otherIdsNameNobody(String id) {
        assertThat(RequestAddresses.parse(id)).isEmpty();
    }

    @Test
    void whatItDrawsItReads() {
        var drawn = RequestAddresses.draw(new PeerAddress("a", 1), new PeerAddress("b", 65_535));
        assertThat(RequestAddresses.parse("cmpl-" + drawn.transferId() + "-0")).contains(drawn);
    }

    @Test
    @DisplayName("P3 rank k listens on the k-th port after rank 0")
    void rankKListensOnTheKthPortAfterRankZero() {
        var base = new PeerAddress("h", 65_534);
        assertThat(base.rank(1)).contains(new PeerAddress("h", 65_535));
        assertThat(base.rank(2)).isEmpty();
        assertThat(new PeerAddress("::1", 5).endpoint()).isEqualTo("tcp://[::1]:5");
    }

    @Test
    @DisplayName("P4 messages of protocol 0 are vLLM's, byte for byte")
    void messagesOfProtocolZeroAreVllmsByteForByte() {
        var uniqueId = new byte[128];
        for (int i = 0; i < 128; i++) {
            uniqueId[i] = (byte) i;
        }
        assertBytes(
                new VllmMessage.New(uniqueId),
                "82a3636d64a34e4557a9756e697175655f6964c480" + HexFormat.of().formatHex(uniqueId));
        assertBytes(
                new VllmMessage.Put("r#model.layers.0", new long[] {2, 3, 1000}, "bfloat16"),
                "84a3636d64a3505554a974656e736f725f6964b0"
                        + "72236d6f64656c2e6c61796572732e30"
                        + "a57368617065930203cd03e8a56474797065a862666c6f61743136");
        assertBytes(new VllmMessage.Get("r#l"), "82a3636d64a3474554a974656e736f725f6964a372236c");
        assertBytes(
                new VllmMessage.Found(new long[] {300, 70_000}, "float16"),
                "83a372657400a5736861706592cd012cce00011170a56474797065a7666c6f61743136");
        assertBytes(new VllmMessage.Missing(), "81a372657401");
        assertBytes(
                new VllmMessage.Ping("P", "h:8000", "h:21001"),
                "83a474797065a150ac687474705f61646472657373a6683a38303030"
                        + "ab7a6d715f61646472657373a7683a3231303031");
        assertBytes(
                new VllmMessage.Goodbye("h:8000", "h:21001"),
                "83a474797065a3425945ac687474705f61646472657373a6683a38303030"
                        + "ab7a6d715f61646472657373a7683a3231303031");
        assertThat(VllmMessage.PUT_GO).containsExactly(0x30);
        assertThat(VllmMessage.PUT_NO_MEMORY).containsExactly(0x31);
    }

    private static void assertBytes(VllmMessage message, String hex) {
        assertThat(HexFormat.of().formatHex(message.encode())).isEqualTo(hex);
        var again = VllmMessage.decode(HexFormat.of().parseHex(hex));
        assertThat(again).hasSameClassAs(message);
        assertThat(HexFormat.of().formatHex(again.encode())).isEqualTo(hex);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "", // nothing
                "c0", // nil
                "80", // no field
                "81a3636d64a3464f4f", // cmd FOO
                "81a3636d64a3474554", // GET without tensor_id
                "81a3636d6405", // cmd is a number
                "82a3636d64a34e4557a9756e697175655f6964c40100", // id of one byte
                "82a3636d64a3474554a3636d64a3474554", // cmd twice
                "82a3636d64a3474554a974656e736f725f6964a372236c00", // a byte too many
                "84a3636d64a3505554a974656e736f725f6964a161a5736861706591ffa56474797065a161", // -1
                "dfffffffff" // four billion fields
            })
    @DisplayName("P5 what is no message of protocol 0 is refused")
    void whatIsNoMessageOfProtocolZeroIsRefused(String hex) {
        assertThatThrownBy(() -> VllmMessage.decode(HexFormat.of().parseHex(hex)))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.PROTOCOL));
    }

    @Test
    void noiseIsAMessageOrRefused() {
        long seed = System.nanoTime();
        var random = new Random(seed);
        for (int i = 0; i < 20_000; i++) {
            var noise = new byte[random.nextInt(300)];
            random.nextBytes(noise);
            if (noise.length > 0 && i % 2 == 0) {
                noise[0] = (byte) (0x80 | random.nextInt(16)); // a map, at least
            }
            try {
                assertThat(VllmMessage.decode(noise)).isNotNull();
            } catch (KvFerryException e) {
                assertThat(e.code()).isEqualTo(ErrorCode.PROTOCOL);
            } catch (Throwable e) {
                throw new AssertionError("seed " + seed + " round " + i, e);
            }
        }
    }

    private static List<PeerMessage> all() {
        var transfer =
                new PeerMessage.Transfer("t", 7, 8, SHAPE, new PromptMark(33, 5), new int[] {3, 4});
        return List.of(
                new PeerMessage.Offer(transfer),
                new PeerMessage.Pull(transfer, new Grant(1, 2), "h:5"),
                new PeerMessage.Release("t", 7, 0),
                new PeerMessage.Granted(9, new Grant(3, 4), "h:6", new int[] {1}, 4096),
                new PeerMessage.Refused(9, new Failure(ErrorCode.NO_MEMORY, "full")),
                new PeerMessage.Sent(9, 12),
                new PeerMessage.Unused("t", 7, new Grant(5, 6)));
    }

    @Test
    void messagesOfProtocolOneComeBackAsTheyWere() {
        for (var message : all()) {
            var frame = message.encode();
            assertThat(PeerMessage.isFramed(frame)).isTrue();
            var again = PeerMessage.decode(frame);
            assertThat(again).usingRecursiveComparison().isEqualTo(message);
            assertThat(again.encode()).isEqualTo(frame);
        }
        assertThat(PeerMessage.isFramed(new VllmMessage.Missing().encode())).isFalse();
        assertThat(HexFormat.of().formatHex(new PeerMessage.Sent(9, 12).encode()))
                .as("the form is fixed: peers of other builds read it")
                .isEqualTo("c1010609000000000000000c00000000000000");
    }

    @Test
    void damagedMessagesOfProtocolOneAreRefused() {
        long seed = System.nanoTime();
        var random = new Random(seed);
        for (var message : all()) {
            var frame = message.encode();
            for (int cut = 0; cut < frame.length; cut++) {
                refused(Arrays.copyOf(frame, cut), "cut to " + cut);
            }
            refused(Arrays.copyOf(frame, frame.length + 1), "a byte too many");
            var other = frame.clone();
            other[1] = 2;
            refused(other, "version 2");
            for (int i = 0; i < 500; i++) { // never anything but a message or a refusal
                var noise = frame.clone();
                noise[random.nextInt(noise.length)] = (byte) random.nextInt();
                noise[random.nextInt(noise.length)] = (byte) random.nextInt();
                try {
                    assertThat(PeerMessage.decode(noise)).isNotNull();
                } catch (KvFerryException e) {
                    assertThat(e.code())
                            .as("seed %d", seed)
                            .isIn(ErrorCode.PROTOCOL, ErrorCode.INCOMPATIBLE);
                }
            }
        }
    }

    private static void refused(byte[] frame, String how) {
        assertThatThrownBy(() -> PeerMessage.decode(frame))
                .as(how)
                .isInstanceOf(KvFerryException.class);
    }

    @Test
    void unlikePromptsAreToldApart() {
        int[] prompt = {5, 6, 7, 8};
        var mark = PromptMark.of(4, i -> prompt[i]);
        assertThat(PromptMark.of(4, i -> prompt[i])).isEqualTo(mark);
        assertThat(PromptMark.of(3, i -> prompt[i])).isNotEqualTo(mark);
        assertThat(PromptMark.of(4, i -> prompt[3 - i])).isNotEqualTo(mark);
        assertThat(PromptMark.of(4, i -> i == 2 ? 9 : prompt[i])).isNotEqualTo(mark);
    }

    @Test
    void unlikeCachesAreToldApart() {
        assertThat(SHAPE.misfit(SHAPE)).isEmpty();
        assertThat(SHAPE.misfit(new CacheShape("aa", "LBHNC/1", "float32", 0, 2, "2 layers bb")))
                .hasValueSatisfying(reason -> assertThat(reason).contains("tensor-parallel"));
        assertThat(SHAPE.misfit(new CacheShape("aa", "LBNHC/1", "float32", 0, 1, "2 layers bb")))
                .hasValueSatisfying(reason -> assertThat(reason).contains("layout"));
        assertThat(SHAPE.misfit(new CacheShape("ab", "LBHNC/1", "float32", 0, 1, "2 layers bb")))
                .isPresent();
        assertThat(SHAPE.misfit(new CacheShape("aa", "LBHNC/1", "float16", 0, 1, "2 layers bb")))
                .hasValueSatisfying(reason -> assertThat(reason).contains("dtype"));
        assertThat(SHAPE.misfit(new CacheShape("aa", "LBHNC/1", "float32", 0, 1, "3 layers bb")))
                .hasValueSatisfying(reason -> assertThat(reason).contains("layers"));
    }
}
