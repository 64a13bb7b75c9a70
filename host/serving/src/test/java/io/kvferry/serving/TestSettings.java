// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving;

import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.config.ConfigText;
import io.kvferry.multiconnector.config.Family;
import io.kvferry.serving.http.Json;

import org.jspecify.annotations.Nullable;

import tools.jackson.databind.node.ObjectNode;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;

/// [EngineSettings] of small engines, of which a test says only what it is about. Each method
/// answers this object.
public final class TestSettings {
    private final String runner;
    private final Path model;
    private Map<String, Object> options = Map.of();
    private @Nullable String kv;
    private @Nullable String ec;
    private @Nullable Path plugins;
    private int blockTokens = 16;
    private int stepTokens = 2048;
    private int blocks = 128;
    private Duration holdPatience = Duration.ofSeconds(5);
    private int ranks = 1;
    private boolean processes;
    private boolean prefixCache = true;
    private String salt = "";

    private TestSettings(String runner, Path model) {
        this.runner = runner;
        this.model = model;
    }

    public static TestSettings llama(Path model) {
        return new TestSettings("llama", model);
    }

    public static TestSettings synthetic() {
        return new TestSettings("synthetic", Path.of(""));
    }

    public TestSettings option(String name, Object value) {
        options = Map.of(name, value);
        return this;
    }

    /// A KV connector with one option, broken loads computed again.
    public TestSettings kv(String connector, String option, String value) {
        kv = Json.text(config("kv", connector, option, value));
        return this;
    }

    /// A KV connector by its whole JSON.
    public TestSettings kvJson(String json) {
        kv = json;
        return this;
    }

    /// DiskConnector on this folder.
    public TestSettings disk(Path folder) {
        return kv("DiskConnector", "path", folder.toString());
    }

    /// MultiConnector over nothing but DiskConnector on this folder.
    public TestSettings multi(Path folder) {
        var config = config("kv", "MultiConnector", "load_policy", "compose");
        ((ObjectNode) config.get("kv_connector_extra_config"))
                .putArray("connectors")
                .add(config("kv", "DiskConnector", "path", folder.toString()));
        kv = Json.text(config);
        return this;
    }

    /// An encoder-cache connector with one option.
    public TestSettings ec(String connector, String option, String value) {
        var config = config("ec", connector, option, value);
        config.remove("ec_load_failure_policy");
        ec = Json.text(config);
        return this;
    }

    private static ObjectNode config(String kind, String connector, String option, String value) {
        var config =
                Json.object()
                        .put(kind + "_connector", connector)
                        .put(kind + "_role", kind + "_both")
                        .put(kind + "_load_failure_policy", "recompute");
        config.putObject(kind + "_connector_extra_config").put(option, value);
        return config;
    }

    public TestSettings plugins(Path folder) {
        plugins = folder;
        return this;
    }

    public TestSettings blockTokens(int tokens) {
        blockTokens = tokens;
        return this;
    }

    /// Blocks in the pool.
    public TestSettings blocks(int count) {
        blocks = count;
        return this;
    }

    /// How long holds may keep requests from running.
    public TestSettings holdPatience(Duration patience) {
        holdPatience = patience;
        return this;
    }

    /// Most tokens of a step.
    public TestSettings stepTokens(int tokens) {
        stepTokens = tokens;
        return this;
    }

    /// @param inProcesses whether each gets a JVM of its own
    public TestSettings ranks(int count, boolean inProcesses) {
        ranks = count;
        processes = inProcesses;
        return this;
    }

    /// Whatever is asked for again comes from the connector.
    public TestSettings noPrefixCache() {
        prefixCache = false;
        return this;
    }

    public TestSettings salt(String tenant) {
        salt = tenant;
        return this;
    }

    public EngineSettings get() {
        return new EngineSettings(
                runner,
                model,
                options,
                Optional.ofNullable(kv).map(json -> ConfigText.of(Family.KV, json)),
                Optional.ofNullable(ec).map(json -> ConfigText.of(Family.EC, json)),
                Optional.ofNullable(plugins),
                blockTokens,
                blocks,
                ranks,
                processes,
                stepTokens,
                256,
                holdPatience,
                prefixCache,
                salt,
                0,
                Kvferry.STAGING_BYTES);
    }
}
