// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.engine.Engine;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.config.ConfigText;
import io.kvferry.multiconnector.config.Family;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.spi.observe.EventSink;

import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import java.util.stream.IntStream;

import javax.tools.ToolProvider;

/// Ranks in JVMs of their own, with a connector that is in the plugin folder only: the example
/// plugin, in a class loader of its own in each process.
class WorkerProcessesTest {
    private static final Path EXAMPLE = Path.of("../../examples/plugin-folder/src/main");
    private static final int[] PROMPT = IntStream.range(0, 23).map(i -> 300 + i).toArray();

    @TempDir Path folder;

    @BeforeEach
    void packThePlugin() throws IOException {
        var classes = Files.createDirectories(folder.resolve("classes"));
        var compiler = ToolProvider.getSystemJavaCompiler();
        try (var files = compiler.getStandardFileManager(null, null, null);
                var sources = Files.walk(EXAMPLE.resolve("java"))) {
            var units =
                    files.getJavaFileObjectsFromPaths(
                            sources.filter(file -> file.toString().endsWith(".java")).toList());
            var options =
                    List.of("-d", classes.toString(), "-cp", System.getProperty("java.class.path"));
            assertThat(compiler.getTask(null, files, null, options, null, units).call()).isTrue();
        }
        var jar = Files.createDirectories(folder.resolve("plugins/example")).resolve("example.jar");
        try (var out = new JarOutputStream(Files.newOutputStream(jar))) {
            pack(out, classes);
            pack(out, EXAMPLE.resolve("resources"));
        }
    }

    private static void pack(JarOutputStream out, Path root) throws IOException {
        try (var all = Files.walk(root)) {
            for (var file : all.filter(Files::isRegularFile).sorted().toList()) {
                out.putNextEntry(new JarEntry(root.relativize(file).toString()));
                Files.copy(file, out);
                out.closeEntry();
            }
        }
    }

    private EngineSettings settings() {
        var connector =
                """
                {"kv_connector": "FolderConnector", "kv_role": "kv_both",
                 "kv_connector_extra_config": {"folder": "%s"}}\
                """
                        .formatted(folder.resolve("blocks"));
        return new EngineSettings(
                "synthetic",
                Path.of(""),
                Map.of("verify", "all"),
                Optional.of(ConfigText.of(Family.KV, connector)),
                Optional.empty(),
                Optional.of(folder.resolve("plugins")),
                4,
                64,
                2,
                true,
                2048,
                8,
                Duration.ofSeconds(5),
                true,
                "",
                0,
                Kvferry.STAGING_BYTES);
    }

    private static Outcome.Finished run(Engine engine) {
        var outcome =
                engine.submit(GenerationRequest.of(PROMPT, SamplingParams.greedy(4)))
                        .await(Deadline.in(Duration.ofSeconds(40)));
        assertThat(outcome)
                .hasValueSatisfying(o -> assertThat(o).isInstanceOf(Outcome.Finished.class));
        return (Outcome.Finished) outcome.orElseThrow();
    }

    /// The case of an engine that was assembled elsewhere: by SchedulerBenchmark, or by an
    /// embedder.
    @Test
    void withoutAHostConfigurationFindThePluginsOfTheClassPath() {
        var host = new ServingWorkerHost();
        host.configure("", EventSink.NONE);
        assertThat(host.runner("synthetic").name()).isEqualTo("synthetic");
        assertThat(host.kvConnector("MooncakeConnector").name()).isEqualTo("MooncakeConnector");
        assertThat(host.services().stagingPool()).isNotEqualTo(StagingPool.NONE);
    }

    @Test
    void findThePluginsOfThePluginFolder() {
        assertThatThrownBy(
                        () -> Class.forName("io.kvferry.examples.folder.FolderConnectorProvider"))
                .isInstanceOf(ClassNotFoundException.class);
        int[] tokens;
        try (var assembled = AssembledEngine.start(settings())) {
            var first = run(assembled.engine());
            tokens = first.tokens();
            assertThat(first.usage().external()).isEmpty();
            assertThat(ProcessHandle.current().children().filter(ProcessHandle::isAlive))
                    .hasSize(2);
        }
        try (var assembled = AssembledEngine.start(settings())) {
            var second = run(assembled.engine());
            assertThat(second.tokens()).isEqualTo(tokens);
            assertThat(second.usage().external())
                    .singleElement()
                    .satisfies(share -> {
                        assertThat(share.source()).isEqualTo("FolderConnector");
                        assertThat(share.tokens()).isEqualTo(20);
                    });
        }
        assertThat(ProcessHandle.current().children().filter(ProcessHandle::isAlive)).isEmpty();
    }
}
