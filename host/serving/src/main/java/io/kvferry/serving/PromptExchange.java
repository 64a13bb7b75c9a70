// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving;

import io.kvferry.engine.model.Model;
import io.kvferry.engine.model.ModelSource;
import io.kvferry.engine.model.Tokenizer;
import io.kvferry.multiconnector.Kvferry;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.exchange.CacheExchange;
import io.kvferry.spi.exchange.CacheExchange.Copied;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.RankInfo;
import io.kvferry.toolkit.hash.BlockHasher;
import io.kvferry.toolkit.hash.HashChain;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/// Copies the cached KV of prompts between the connector's store and a folder of another system,
/// with the settings of the engines but without an engine. The model is opened only for its
/// tokenizer and its identity; nothing is computed.
///
/// Threading: one thread.
public final class PromptExchange implements AutoCloseable {
    private final Kvferry kvferry;
    private final Model model;
    private final CacheExchange exchange;
    private final BlockHasher hasher;
    private final int blockTokens;

    private PromptExchange(
            Kvferry kvferry,
            Model model,
            CacheExchange exchange,
            BlockHasher hasher,
            int blockTokens) {
        this.kvferry = kvferry;
        this.model = model;
        this.exchange = exchange;
        this.hasher = hasher;
        this.blockTokens = blockTokens;
    }

    /// @param format a name that the connector knows
    /// @throws KvFerryException when a setting is wrong or the connector cannot do it, in one
    ///   readable message
    public static PromptExchange open(EngineSettings settings, String format, Path folder) {
        var config =
                settings.kvConfig()
                        .orElseThrow(() ->
                                new KvFerryException(
                                        ErrorCode.BAD_CONFIG,
                                        "--kv-transfer-config is missing: it says where the engines keep"
                                                + " their cache"));
        var kvferry =
                Kvferry.open(
                        AssembledEngine.catalog(settings.pluginFolder()), AssembledEngine::log);
        try {
            var selected = kvferry.kv(config);
            var runner = RunnerChoice.of(kvferry.plugins(), settings);
            var options =
                    runner.options()
                            .read("options of runner " + runner.name(), settings.runnerOptions());
            var model = runner.open(new ModelSource(settings.model(), options));
            try {
                var info =
                        model.info(selected.capabilities().requiredLayout(), selected.instance());
                int blockTokens = settings.blockTokens();
                int ranks = settings.ranks();
                var namespace = info.namespace(blockTokens, ranks, settings.salt());
                var exchange =
                        selected.openExchange(
                                new EngineInfo(
                                        info.name(),
                                        namespace,
                                        info.cacheSpec(blockTokens, settings.blocks(), ranks),
                                        ranks,
                                        0,
                                        0),
                                new RankInfo(0, ranks, 0, ranks, 0, 1),
                                format,
                                folder);
                return new PromptExchange(
                        kvferry, model, exchange, BlockHasher.of(namespace), blockTokens);
            } catch (RuntimeException e) {
                model.close();
                throw e;
            }
        } catch (RuntimeException e) {
            kvferry.close();
            throw e;
        }
    }

    public Tokenizer tokenizer() {
        return model.tokenizer();
    }

    /// From the folder into the connector's store.
    ///
    /// @throws KvFerryException as [CacheExchange#importPrompt]
    public Copied importPrompt(int[] tokens, Deadline deadline) {
        return exchange.importPrompt(prompt(tokens), deadline);
    }

    /// From the connector's store into the folder.
    ///
    /// @throws KvFerryException as [CacheExchange#exportPrompt]
    public Copied exportPrompt(int[] tokens, Deadline deadline) {
        return exchange.exportPrompt(prompt(tokens), deadline);
    }

    private CacheExchange.Prompt prompt(int[] tokens) {
        int blocks = tokens.length / blockTokens;
        var chain = new HashChain(hasher.root(""), blocks);
        hasher.extend(chain, tokens, blocks, BlockHasher.Extra.NONE);
        var hashes = new ArrayList<BlockHash>(blocks);
        for (int block = 0; block < blocks; block++) {
            hashes.add(chain.get(block));
        }
        return new CacheExchange.Prompt(tokens, List.of(), hashes);
    }

    @Override
    public void close() {
        exchange.close();
        model.close();
        kvferry.close();
    }
}
