// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector.keys;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.memory.BlockHash;

import java.util.HexFormat;
import java.util.Optional;

/// Keys of blocks. Those of [KeyForm#VLLM] are vLLM's:
/// `[<prefix>@]<model>@tp_rank:<t>@pcp0@dcp0@pp_rank:<p>@group:<g>@<hash>`. Those of
/// [KeyForm#KVFERRY] have `@kvferry:<fingerprint>` behind the model, which covers all that makes
/// bytes comparable: weights, runner, element type, layout, block size, rank split, salt.
///
/// Threading: immutable.
public final class BlockKeys {
    private static final int FINGERPRINT_DIGITS = 32;

    private final String[][] prefixes;
    private final String start;
    private final String groupPrefix;
    private final int groups;

    /// @throws io.kvferry.spi.KvFerryException as of [KeyForm#of]
    public BlockKeys(EngineInfo engine, OptionValues options) {
        var namespace = engine.namespace();
        boolean vllm = KeyForm.of(options, engine) == KeyForm.VLLM;
        String prefix = options.string("cache_prefix").strip();
        String start =
                (prefix.isEmpty() ? "" : prefix + "@")
                        + lastElement(engine.modelName())
                        + (vllm
                                ? ""
                                : "@kvferry:" + namespace.hex().substring(0, FINGERPRINT_DIGITS));
        this.start = start;
        this.groups = engine.cache().groups().size();
        this.groupPrefix = (vllm ? "vllm" : "kvferry") + "-mooncake-store:" + start + "@";
        this.prefixes = new String[engine.worldSize()][groups];
        int tp = KeyForm.tpSize(engine);
        for (int rank = 0; rank < prefixes.length; rank++) {
            for (int group = 0; group < groups; group++) {
                prefixes[rank][group] =
                        start
                                + "@tp_rank:"
                                + rank % tp
                                + "@pcp0@dcp0@pp_rank:"
                                + rank / tp
                                + "@group:"
                                + group
                                + "@";
            }
        }
    }

    private static String lastElement(String model) {
        String trimmed = model.replaceAll("/+$", "");
        return trimmed.substring(trimmed.lastIndexOf('/') + 1);
    }

    /// Whose objects the blocks are.
    public static StoreIdentity identity(EngineInfo engine, String tenant) {
        var namespace = engine.namespace();
        return new StoreIdentity(tenant, namespace.model(), namespace.hex());
    }

    /// What the keys of all blocks begin with.
    public String start() {
        return start + "@";
    }

    public int ranks() {
        return prefixes.length;
    }

    public int groups() {
        return groups;
    }

    public String of(BlockHash hash, int group, int rank) {
        return prefixes[rank][group].concat(hash.hex());
    }

    /// Name of the group of all parts of a block.
    public String groupOf(BlockHash hash) {
        return groupPrefix.concat(hash.hex());
    }

    /// The keys of all parts of a block: by cache group, then by rank.
    public String[] all(BlockHash hash) {
        String hex = hash.hex();
        var keys = new String[prefixes.length * groups];
        int at = 0;
        for (int group = 0; group < groups; group++) {
            for (String[] byGroup : prefixes) {
                keys[at++] = byGroup[group].concat(hex);
            }
        }
        return keys;
    }

    /// What a key stands for.
    public record Part(int group, BlockHash hash) {}

    /// The block that a key of this cache belongs to; empty for other keys.
    public Optional<Part> part(String key) {
        for (String[] byGroup : prefixes) {
            for (int group = 0; group < groups; group++) {
                String prefix = byGroup[group];
                if (key.startsWith(prefix)
                        && key.length() == prefix.length() + 2 * BlockHash.BYTES) {
                    return Optional.of(new Part(group, hash(key.substring(prefix.length()))));
                }
            }
        }
        return Optional.empty();
    }

    private static BlockHash hash(String hex) {
        return BlockHash.of(HexFormat.of().parseHex(hex), 0);
    }
}
