// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.wire;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import java.util.function.Consumer;

class WireTest {
    private static byte[] bytes(String hex) {
        return HexFormat.of().parseHex(hex);
    }

    private static void malformed(byte[] bytes, Consumer<WireReader> read) {
        assertThatThrownBy(() -> read.accept(new WireReader(bytes)))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.PROTOCOL));
    }

    @Test
    void writesLittleEndianFields() {
        var out =
                new WireWriter(1)
                        .u8(0xfe)
                        .bool(true)
                        .i32(0x0102_0304)
                        .i64(-2)
                        .string("äx")
                        .bytes(new byte[] {9})
                        .ints(new int[] {1, -1})
                        .longs(new long[] {3});
        assertThat(HexFormat.of().formatHex(out.toByteArray()))
                .isEqualTo(
                        "fe01"
                                + "04030201"
                                + "feffffffffffffff"
                                + "03000000c3a478"
                                + "0100000009"
                                + "0200000001000000ffffffff"
                                + "010000000300000000000000");
    }

    @Test
    void readsWhatItWrote() {
        var out =
                new WireWriter()
                        .u8(200)
                        .bool(false)
                        .i32(-5)
                        .i64(Long.MIN_VALUE)
                        .f64(-0.0)
                        .string("")
                        .string("日本")
                        .bytes(new byte[] {1, 2})
                        .raw(new byte[] {7, 8, 9}, 1, 2)
                        .ints(new int[0])
                        .longs(new long[] {1, 2});
        var in = new WireReader(out.toByteArray());
        assertThat(in.u8()).isEqualTo(200);
        assertThat(in.bool()).isFalse();
        assertThat(in.i32()).isEqualTo(-5);
        assertThat(in.i64()).isEqualTo(Long.MIN_VALUE);
        assertThat(Double.doubleToRawLongBits(in.f64()))
                .isEqualTo(Double.doubleToRawLongBits(-0.0));
        assertThat(in.string()).isEmpty();
        assertThat(in.string()).isEqualTo("日本");
        assertThat(in.bytes()).containsExactly(1, 2);
        assertThat(in.raw(2)).containsExactly(8, 9);
        assertThat(in.ints()).isEmpty();
        assertThat(in.longs()).containsExactly(1, 2);
        in.end();
        assertThat(in.remaining()).isZero();
    }

    @Test
    void refusesWhatIsTooShort() {
        malformed(new byte[0], WireReader::u8);
        malformed(new byte[3], WireReader::i32);
        malformed(new byte[7], WireReader::i64);
        malformed(bytes("05000000aabb"), WireReader::bytes);
        malformed(bytes("0200000001000000"), WireReader::ints);
        malformed(bytes("010000000100000000"), WireReader::longs);
        malformed(new byte[2], in -> in.raw(3));
        malformed(new byte[2], in -> in.raw(-1));
    }

    @Test
    void hugeCountsCostNothing() {
        malformed(bytes("ffffff7f00"), WireReader::bytes);
        malformed(bytes("ffffff7f00"), WireReader::ints);
        malformed(bytes("ffffff7f00"), WireReader::longs);
        malformed(bytes("ffffff7f00"), WireReader::string);
        malformed(bytes("ffffffff00"), WireReader::bytes);
        malformed(bytes("00000080"), in -> in.count(1));
        malformed(bytes("0000004000000000"), in -> in.count(8));
    }

    @Test
    void refusesWrongValues() {
        malformed(bytes("02"), WireReader::bool);
        malformed(bytes("02000000c328"), WireReader::string);
        malformed(
                bytes("0000"),
                in -> {
                    in.u8();
                    in.end();
                });
    }

    @Test
    void noiseNeverEscapesAsAnythingElse() {
        var random = new Random(42);
        for (int i = 0; i < 20_000; i++) {
            var noise = new byte[random.nextInt(40)];
            random.nextBytes(noise);
            var in = new WireReader(noise);
            try {
                switch (random.nextInt(5)) {
                    case 0 -> in.string();
                    case 1 -> in.bytes();
                    case 2 -> in.ints();
                    case 3 -> in.longs();
                    default -> in.count(1 + random.nextInt(64));
                }
                assertThat(in.remaining()).isNotNegative();
            } catch (KvFerryException e) {
                assertThat(e.code()).isEqualTo(ErrorCode.PROTOCOL);
            }
        }
    }

    @Test
    void writersAreReused() {
        var out = new WireWriter().string("first");
        var first = out.toPayload(3);
        var second = out.reset().i32(1).toPayload(3);
        assertThat(first.reader().string()).isEqualTo("first");
        assertThat(second.bytes()).hasSize(4);
        assertThat(out.reset().toPayload(3)).isSameAs(Payload.EMPTY);
    }

    @Test
    void payloadsCompareByContent() {
        var one = new Payload(1, new byte[] {1, 2});
        assertThat(one)
                .isEqualTo(new Payload(1, new byte[] {1, 2}))
                .hasSameHashCodeAs(new Payload(1, new byte[] {1, 2}));
        assertThat(one)
                .isNotEqualTo(new Payload(2, new byte[] {1, 2}))
                .isNotEqualTo(new Payload(1, new byte[] {1}));
        assertThat(one.toString()).contains("0102");
        assertThatThrownBy(() -> new Payload(70_000, new byte[0]))
                .isInstanceOf(IllegalArgumentException.class);
        assertThat(Arrays.toString(Payload.EMPTY.bytes())).isEqualTo("[]");
    }

    @Test
    void payloadsOfAnotherVersionAreIncompatible() {
        var one = new Payload(1, new byte[] {7, 0, 0, 0});
        assertThat(one.reader("plan", 1).i32()).isEqualTo(7);
        assertThatThrownBy(() -> one.reader("plan", 2))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.INCOMPATIBLE))
                .hasMessageContaining("plan of version 1")
                .hasMessageContaining("reads version 2");
    }

    @Test
    void textsAreTheSameBytesWhateverLettersTheyHave() throws IOException {
        for (var text :
                List.of("", "plain", "pläin", "a\u0000b", "z\ud83d\ude00", "\u007f\u0080")) {
            var out = new WireWriter(1).string(text).i32(7);
            var stream = new ByteArrayOutputStream();
            out.writeTo(stream);
            assertThat(stream.toByteArray())
                    .isEqualTo(out.toByteArray())
                    .isEqualTo(
                            new WireWriter()
                                    .bytes(text.getBytes(StandardCharsets.UTF_8))
                                    .i32(7)
                                    .toByteArray());
        }
    }
}
