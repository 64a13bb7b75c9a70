// SPDX-License-Identifier: Apache-2.0
package io.kvferry.examples.embedding;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.examples.folder.FolderConnectorProvider;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.Map;
import java.util.zip.CRC32C;

/// kvferry's engine over the example's runner, with a connector: the second engine gets the blocks
/// of the first, and the runner checks each byte of them.
class ChainRunnerTest {
    private static final String PROMPT =
            "Call me Ishmael. Some years ago, never mind how long precisely";

    @TempDir Path folder;

    private EngineConfig config() {
        return EngineConfig.of(new ChainModel.Provider(), Path.of(""), Map.of()).blockCount(64);
    }

    private EngineConfig sharing(String engineId) {
        return config().kvConnector(
                        new FolderConnectorProvider(),
                        ConnectorConfig.of(
                                "FolderConnector",
                                KvRole.BOTH,
                                engineId,
                                Map.of("folder", folder.toString())));
    }

    private static Outcome generate(EngineConfig config) {
        try (var engine = Engine.open(config).start()) {
            var prompt = engine.tokenizer().encode(PROMPT);
            var request =
                    GenerationRequest.of(prompt, SamplingParams.greedy(24).withIgnoreEos(true));
            return engine.submit(request).await(Deadline.in(Duration.ofSeconds(60))).orElseThrow();
        }
    }

    private static int[] tokens(Outcome outcome) {
        assertThat(outcome).isInstanceOf(Outcome.Finished.class);
        return ((Outcome.Finished) outcome).tokens();
    }

    @Test
    void itsProviderCanBeNamedInAJar() throws Exception {
        // as ServiceLoader makes it
        assertThat(ChainModel.Provider.class.getConstructor().newInstance().name())
                .isEqualTo("chain");
    }

    @Test
    void aSecondEngineGetsTheBlocksOfTheFirst() {
        int[] alone = tokens(generate(config()));
        assertThat(tokens(generate(sharing("first")))).isEqualTo(alone);
        var second = generate(sharing("second"));
        assertThat(tokens(second)).isEqualTo(alone);
        assertThat(second.usage().cachedTokens()).isEqualTo(PROMPT.length() / 16 * 16);
    }

    /// The counter-check: a byte changed behind the connector's checksum is found by the runner.
    @Test
    void aWrongByteIsFound() throws IOException {
        tokens(generate(sharing("first")));
        try (var files = Files.walk(folder)) {
            for (var file : files.filter(Files::isRegularFile).toList()) {
                Files.write(
                        file,
                        flipped(Files.readAllBytes(file)),
                        StandardOpenOption.TRUNCATE_EXISTING);
            }
        }
        assertThat(generate(sharing("second")))
                .isInstanceOfSatisfying(
                        Outcome.Failed.class,
                        failed -> assertThat(failed.failure().message()).contains("wrong KV"));
    }

    private static byte[] flipped(byte[] file) {
        file[100] ^= 1;
        var crc = new CRC32C();
        crc.update(file, 0, file.length - 4);
        ByteBuffer.wrap(file).putInt(file.length - 4, (int) crc.getValue());
        return file;
    }
}
