// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector.keys;

import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvFormat;

import org.jspecify.annotations.Nullable;

import java.util.List;
import java.util.function.Supplier;

/// How blocks are named in the store.
public enum KeyForm {
    /// With a fingerprint of all that makes bytes comparable.
    KVFERRY,

    /// As vLLM 0.33.0 names them, by its own hashes, so that engines of both share them.
    VLLM;

    public static final String OPTION = "key_form";
    public static final String ALGORITHM = "prefix_caching_hash_algo";
    public static final String SEED = "PYTHONHASHSEED";

    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] where vLLM's form of keys does not say
    ///   which bytes are meant
    public static KeyForm of(OptionValues options, EngineInfo engine) {
        if (!options.string(OPTION).equals("vllm")) {
            return KVFERRY;
        }
        List<KvCacheGroup> groups = engine.cache().groups();
        KvCacheGroup only = groups.getFirst();
        if (groups.size() > 1 || only.kind() != KvCacheGroup.Kind.FULL_ATTENTION) {
            throw incompatible(
                    "one cache group of full attention; with more, vLLM stores all layers under"
                            + " each key");
        }
        int tp = tpSize(engine);
        boolean split =
                switch (only.format()) {
                    case KvFormat.Heads heads -> heads.kvHeads() % tp == 0;
                    case KvFormat.Vectors _ -> tp == 1;
                    case KvFormat.Opaque _ -> false;
                };
        if (!split) {
            throw incompatible(
                    "KV heads that are split evenly over "
                            + tp
                            + " ranks: of parts that several ranks hold vLLM stores each once");
        }
        if (only.blockTokens() > VllmHashes.MOST_TOKENS) {
            throw incompatible("blocks of at most " + VllmHashes.MOST_TOKENS + " tokens");
        }
        if (!engine.namespace().salt().isEmpty()) {
            throw incompatible("an engine without a salt: keys of vLLM name none");
        }
        return VLLM;
    }

    private static KvFerryException incompatible(String needs) {
        return new KvFerryException(
                ErrorCode.INCOMPATIBLE, OPTION + " vllm of MooncakeStoreConnector needs " + needs);
    }

    public static int tpSize(EngineInfo engine) {
        return Math.max(1, engine.worldSize() / Math.max(1, engine.namespace().ppSize()));
    }

    /// Makes the hashes of one request each.
    ///
    /// @param seed value of `PYTHONHASHSEED`, or null
    public Supplier<BlockHashes> hashes(
            OptionValues options, EngineInfo engine, @Nullable String seed) {
        if (this == KVFERRY) {
            return () -> BlockHashes.OF_ENGINE;
        }
        var algorithm = VllmHashes.Algorithm.of(options.string(ALGORITHM));
        byte[] root = VllmHashes.root(algorithm, seed);
        int blockTokens = engine.cache().blockTokens();
        return () -> new VllmHashes(algorithm, root, blockTokens);
    }
}
