// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.serving.cli.MakeModelCommand;
import io.kvferry.serving.http.TestClient;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.kv.KvConnectorProvider;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;

/// Engines as the options of `kvferry serve` select them: ranks, worker processes, plugin folder,
/// connectors of both kinds.
@Timeout(300) // worker processes are virtual machines that have to start
class OperatorTest {
    private static final String PROMPT =
            "You don't know about me without you have read a book by the name of The Adventures of Tom Sawyer";
    private static final int ANSWER = 6;

    @TempDir Path folder;

    private static List<Integer> answer(TestSettings settings) throws Exception {
        try (var engine = new ServedEngine(settings.get())) {
            return engine.tokens(PROMPT, ANSWER);
        }
    }

    @Test
    void servesWithARankPerProcess() throws Exception {
        var expected = answer(TestSettings.synthetic());
        assertThat(answer(TestSettings.synthetic().ranks(2, false))).isEqualTo(expected);
        assertThat(answer(TestSettings.synthetic().ranks(2, true))).isEqualTo(expected);
    }

    @Test
    void namesARequestInLogsAfterTheIdOfItsClient() {
        try (var assembled = AssembledEngine.start(TestSettings.synthetic().get())) {
            var request =
                    GenerationRequest.of(new int[] {1, 2, 3}, SamplingParams.greedy(1))
                            .withExternalId("from-the-client");
            var handle = assembled.engine().submit(request);
            assertThat(handle.id()).endsWith(":from-the-client");
            assertThat(handle.await(Deadline.in(Duration.ofSeconds(20)))).isPresent();
        }
    }

    @Test
    void refusesRanksWhereTheRunnerHasOne() {
        var model = folder.resolve("model");
        MakeModelCommand.makeDefault(model);
        for (boolean processes : new boolean[] {false, true}) {
            assertThatThrownBy(() -> answer(TestSettings.llama(model).ranks(2, processes)))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.UNSUPPORTED))
                    .hasMessageContaining("one rank, not 2");
        }
    }

    @Test
    void workerProcessesFindThePluginsOfTheFolder() throws Exception {
        var plugins = Files.createDirectory(folder.resolve("plugins"));
        PluginSources.install(
                plugins,
                "example",
                PluginSources.EXAMPLE,
                KvConnectorProvider.class,
                "io.kvferry.examples.folder.FolderConnectorProvider");
        var kv = Files.createDirectory(folder.resolve("kv"));
        var settings =
                TestSettings.synthetic()
                        .ranks(2, true)
                        .plugins(plugins)
                        .kv("FolderConnector", "folder", kv.toString());
        var expected = answer(TestSettings.synthetic());
        for (boolean again : new boolean[] {false, true}) {
            try (var engine = new ServedEngine(settings.get())) {
                assertThat(engine.tokens(PROMPT, ANSWER)).isEqualTo(expected);
                var loaded =
                        engine.metric(
                                "kvferry_prompt_tokens_by_source_total",
                                "connector=\"FolderConnector\"");
                assertThat(loaded > 0).as("prompt tokens loaded: %s", loaded).isEqualTo(again);
                assertThat(engine.metric("kvferry_connector_defects_total", "")).isZero();
                engine.awaitSaved();
            }
        }
    }

    /// The reference plugin lies on the class path, with the TCK.
    @Test
    void servesWithAnEncoderCacheConnector() throws Exception {
        var settings = TestSettings.synthetic().ec("ECMemoryConnector", "store", "operator");
        try (var engine = new ServedEngine(settings.get())) {
            assertThat(engine.tokens(PROMPT, ANSWER)).isEqualTo(answer(TestSettings.synthetic()));
            assertThat(TestClient.get(engine.port(), "/health").statusCode()).isEqualTo(200);
        }
    }

    @Test
    void servesWithTheExampleOfAnEncoderCacheConnector() throws Exception {
        var plugins = Files.createDirectory(folder.resolve("plugins"));
        PluginSources.install(
                plugins,
                "ec-example",
                PluginSources.EC_EXAMPLE,
                EcConnectorProvider.class,
                "io.kvferry.examples.ecfolder.EcFolderProvider");
        var items = folder.resolve("items");
        var settings =
                TestSettings.synthetic()
                        .plugins(plugins)
                        .ec("ECFolderConnector", "folder", items.toString());
        try (var engine = new ServedEngine(settings.get())) {
            assertThat(engine.tokens(PROMPT, ANSWER)).isEqualTo(answer(TestSettings.synthetic()));
            assertThat(TestClient.get(engine.port(), "/health").statusCode()).isEqualTo(200);
            assertThat(items).as("made when the connector opened").isDirectory();
        }
    }
}
