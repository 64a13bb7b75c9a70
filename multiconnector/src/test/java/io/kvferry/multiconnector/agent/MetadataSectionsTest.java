// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireWriter;

import org.junit.jupiter.api.Test;

import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.zip.CRC32C;

class MetadataSectionsTest {
    private static final SortedMap<String, byte[]> SAMPLE =
            new TreeMap<>(Map.of("B", new byte[] {1, 2}, "A", new byte[0]));

    private static void refused(byte[] blob, ErrorCode code) {
        assertThatThrownBy(() -> MetadataSections.decode(blob))
                .isInstanceOfSatisfying(
                        KvFerryException.class, e -> assertThat(e.code()).isEqualTo(code));
    }

    private static byte[] sealed(WireWriter out) {
        var crc = new CRC32C();
        crc.update(out.toByteArray());
        return out.i32((int) crc.getValue()).toByteArray();
    }

    @Test
    void hasAFixedForm() {
        var hex = HexFormat.of().formatHex(MetadataSections.encode(SAMPLE));
        assertThat(hex)
                .startsWith(
                        "4b56464d"
                                + "01000000"
                                + "02000000"
                                + "0100000041"
                                + "00000000"
                                + "0100000042"
                                + "020000000102");
        assertThat(hex).hasSize(2 * (4 + 4 + 4 + 5 + 4 + 5 + 6 + 4));
    }

    @Test
    void readsWhatItWrote() {
        var read = MetadataSections.decode(MetadataSections.encode(SAMPLE));
        assertThat(read).containsOnlyKeys("A", "B");
        assertThat(read.get("B")).containsExactly(1, 2);
    }

    @Test
    void refusesEveryCutAndEveryDamagedBit() {
        var good = MetadataSections.encode(SAMPLE);
        for (int cut = 0; cut < good.length; cut++) {
            refused(Arrays.copyOf(good, cut), ErrorCode.CORRUPT);
        }
        for (int bit = 0; bit < good.length * 8; bit++) {
            var damaged = good.clone();
            damaged[bit / 8] ^= (byte) (1 << bit % 8);
            refused(damaged, ErrorCode.CORRUPT);
        }
        refused(Arrays.copyOf(good, good.length + 1), ErrorCode.CORRUPT);
    }

    @Test
    void refusesOtherVersionsAndHostileCounts() {
        refused(sealed(new WireWriter().i32(0x4d46_564b).i32(2).i64(0)), ErrorCode.INCOMPATIBLE);
        refused(
                sealed(new WireWriter().i32(0x4d46_564b).i32(1).i32(Integer.MAX_VALUE)),
                ErrorCode.CORRUPT);
        refused(
                sealed(
                        new WireWriter()
                                .i32(0x4d46_564b)
                                .i32(1)
                                .i32(2)
                                .string("A")
                                .bytes(new byte[0])
                                .string("A")
                                .bytes(new byte[0])),
                ErrorCode.CORRUPT);
        refused(sealed(new WireWriter().i32(0x4d46_564b).i32(1).i32(0).u8(1)), ErrorCode.CORRUPT);
    }
}
