// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.wire;

import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.RankInfo;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;

/// What the cache of one rank looks like: two ranks exchange blocks only where all of it is equal.
///
/// @param content digest of what the KV means: model, runner, dtype, block size, salt
/// @param layout label of the order of a block's bytes
/// @param layers digest of names, groups and block lengths of the layers, in order
public record CacheShape(
        String content, String layout, String dtype, int tpRank, int tpSize, String layers) {
    private static final int MOST_REPEATED = 100;

    public static CacheShape of(CacheNamespace namespace, RankInfo rank, List<KvRegion> regions) {
        return new CacheShape(
                HexFormat.of().formatHex(namespace.contentDigest()),
                namespace.layout().name() + "/" + namespace.layoutVersion(),
                namespace.dtype().label(),
                rank.tpRank(),
                rank.tpSize(),
                layers(regions));
    }

    private static String layers(List<KvRegion> regions) {
        try {
            var sha = MessageDigest.getInstance("SHA-256");
            for (var region : regions) {
                var text = region.layer() + "\n" + region.group() + "\n" + region.blockBytes();
                sha.update((text + "\n\n").getBytes(StandardCharsets.UTF_8));
            }
            return regions.size() + " layers " + HexFormat.of().formatHex(sha.digest(), 0, 16);
        } catch (NoSuchAlgorithmException e) {
            throw new AssertionError("every JDK has SHA-256", e);
        }
    }

    /// Why blocks of `other` cannot be used here; empty if they can.
    public Optional<String> misfit(CacheShape other) {
        if (tpSize != other.tpSize || tpRank != other.tpRank) {
            return Optional.of(
                    "rank "
                            + other.tpRank
                            + " of "
                            + other.tpSize
                            + " cannot exchange blocks with rank "
                            + tpRank
                            + " of "
                            + tpSize
                            + ": tensor-parallel sizes must be equal");
        }
        for (var pair :
                List.of(
                        List.of("layout", layout, other.layout),
                        List.of("dtype", dtype, other.dtype),
                        List.of("model, runner, dtype or block size", content, other.content),
                        List.of("layers", layers, other.layers))) {
            if (!pair.get(1).equals(pair.get(2))) {
                return Optional.of(
                        pair.getFirst() + " differ: " + cut(pair.get(2)) + ", here " + pair.get(1));
            }
        }
        return Optional.empty();
    }

    /// What a peer said, as far as it is worth repeating.
    private static String cut(String text) {
        return text.length() > MOST_REPEATED ? text.substring(0, MOST_REPEATED) : text;
    }

    void write(WireWriter out) {
        for (var text : Arrays.asList(content, layout, dtype, layers)) {
            out.string(text);
        }
        out.i32(tpRank).i32(tpSize);
    }

    static CacheShape read(WireReader in) {
        var content = in.string();
        var layout = in.string();
        var dtype = in.string();
        var layers = in.string();
        return new CacheShape(content, layout, dtype, in.i32(), in.i32(), layers);
    }
}
