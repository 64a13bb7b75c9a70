// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.junit.jupiter.api.Test;

import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;

class CacheNamespaceTest {
    private static final CacheNamespace SAMPLE =
            new CacheNamespace("m", "r 1", DType.FLOAT16, KvLayout.LBNHC, 1, 16, 2, 1, "s");

    private static String content(CacheNamespace namespace) {
        return HexFormat.of().formatHex(namespace.contentDigest());
    }

    @Test
    void digestsNeverChange() {
        // SHA-256 over the fields in order, each with its length in four big-endian bytes; computed
        // elsewhere.
        assertThat(SAMPLE.hex())
                .isEqualTo("2468ab17e19d65af9ba9c728ae0723e1798127415c4c6eed288781c1a12b5242");
        assertThat(content(SAMPLE))
                .isEqualTo("6b40f2db3a251eb429b145547dae0e1e72358dee0e25adca87feb3ee958c872a");
    }

    @Test
    void everyFieldCountsForTheBytes() {
        var others =
                List.of(
                        new CacheNamespace(
                                "n", "r 1", DType.FLOAT16, KvLayout.LBNHC, 1, 16, 2, 1, "s"),
                        new CacheNamespace(
                                "m", "r 2", DType.FLOAT16, KvLayout.LBNHC, 1, 16, 2, 1, "s"),
                        new CacheNamespace(
                                "m", "r 1", DType.BFLOAT16, KvLayout.LBNHC, 1, 16, 2, 1, "s"),
                        new CacheNamespace(
                                "m", "r 1", DType.FLOAT16, KvLayout.LBHNC, 1, 16, 2, 1, "s"),
                        new CacheNamespace(
                                "m", "r 1", DType.FLOAT16, KvLayout.LBNHC, 2, 16, 2, 1, "s"),
                        new CacheNamespace(
                                "m", "r 1", DType.FLOAT16, KvLayout.LBNHC, 1, 32, 2, 1, "s"),
                        new CacheNamespace(
                                "m", "r 1", DType.FLOAT16, KvLayout.LBNHC, 1, 16, 1, 1, "s"),
                        new CacheNamespace(
                                "m", "r 1", DType.FLOAT16, KvLayout.LBNHC, 1, 16, 2, 2, "s"),
                        new CacheNamespace(
                                "m", "r 1", DType.FLOAT16, KvLayout.LBNHC, 1, 16, 2, 1, ""),
                        new CacheNamespace(
                                "mr", " 1", DType.FLOAT16, KvLayout.LBNHC, 1, 16, 2, 1, "s"));
        var digests = new HashSet<String>();
        digests.add(SAMPLE.hex());
        others.forEach(other -> digests.add(other.hex()));
        assertThat(digests).hasSize(others.size() + 1);
    }

    @Test
    void layoutAndRanksDoNotCountForTheContent() {
        var elsewhere =
                new CacheNamespace("m", "r 1", DType.FLOAT16, KvLayout.LBHNC, 3, 16, 4, 2, "s");
        assertThat(content(elsewhere)).isEqualTo(content(SAMPLE));
        assertThat(elsewhere.hex()).isNotEqualTo(SAMPLE.hex());
        var salted =
                new CacheNamespace("m", "r 1", DType.FLOAT16, KvLayout.LBNHC, 1, 16, 2, 1, "t");
        assertThat(content(salted)).isNotEqualTo(content(SAMPLE));
    }

    @Test
    void hashesSurviveTheirBytes() {
        var hash = new BlockHash(0x0102_0304_0506_0708L, -1, 0, Long.MAX_VALUE);
        assertThat(hash.hex())
                .isEqualTo(
                        "0102030405060708"
                                + "ffffffffffffffff"
                                + "0000000000000000"
                                + "7fffffffffffffff");
        assertThat(BlockHash.of(hash.toBytes(), 0)).isEqualTo(hash);
        assertThat(hash).hasToString("0102030405060708..");
    }

    @Test
    void ranksMustAgree() {
        assertThat(new RankInfo(1, 2, 1, 2, 0, 1).worldSize()).isEqualTo(2);
        assertThatThrownBy(() -> new RankInfo(1, 2, 0, 2, 0, 1))
                .isInstanceOf(IllegalArgumentException.class);
        assertThatThrownBy(() -> new RankInfo(2, 2, 2, 2, 0, 1))
                .isInstanceOf(IllegalArgumentException.class);
    }

    @Test
    void typesAreKnownByTheirLabels() {
        for (var type : DType.values()) {
            assertThat(DType.ofLabel(type.label())).contains(type);
            assertThat(DType.ofLabel("torch." + type.label())).contains(type);
        }
        assertThat(DType.ofLabel("float12")).isEmpty();
    }
}
