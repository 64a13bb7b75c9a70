// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.llama;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.engine.model.ModelMaker;
import io.kvferry.engine.model.ModelSource;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.toolkit.model.ModelDigest;
import io.kvferry.toolkit.tokenizer.BpeTokenizer;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.ServiceLoader;

class MakeModelTest {
    @TempDir Path folder;

    @Test
    void writesTheSameBytesForTheSameSeed() throws IOException {
        MakeModel.write(folder.resolve("a"), 7);
        MakeModel.write(folder.resolve("deep/er/b"), 7);
        try (var files = Files.list(folder.resolve("a"))) {
            assertThat(files)
                    .hasSize(4)
                    .allSatisfy(file ->
                            assertThat(folder.resolve("deep/er/b").resolve(file.getFileName()))
                                    .hasSameBinaryContentAs(file));
        }
    }

    /// The digest of the folder that this version writes: a change breaks every cache of a made
    /// model.
    @Test
    void writesTheSameBytesOnEveryMachine() {
        MakeModel.write(folder.resolve("m"), 42);
        assertThat(ModelDigest.of(folder.resolve("m")))
                .isEqualTo("533458b2ee41fdac8316a1a09844588dcecbc083ec56b7da97c984225dc44735");
    }

    @Test
    void isFoundByServiceLoader() {
        ModelMaker maker = ServiceLoader.load(ModelMaker.class).findFirst().orElseThrow();
        assertThat(maker.name()).isEqualTo("tiny-llama");
        maker.make(folder.resolve("m"), 3);
        MakeModel.write(folder.resolve("n"), 3);
        assertThat(ModelDigest.of(folder.resolve("m")))
                .isEqualTo(ModelDigest.of(folder.resolve("n")));
    }

    @Test
    void refusesToOverwriteAndLeavesNothingBehind() throws IOException {
        Path target = Files.createDirectory(folder.resolve("taken"));
        assertThatThrownBy(() -> MakeModel.write(target, 1))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.INVALID_REQUEST))
                .hasMessageContaining("exists");
        Path file = Files.writeString(folder.resolve("file"), "x");
        assertThatThrownBy(() -> MakeModel.write(file.resolve("m"), 1))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.STORAGE_IO));
        try (var all = Files.walk(folder)) {
            assertThat(all).containsExactlyInAnyOrder(folder, target, file);
        }
    }

    @Test
    void hasATokenPerByteAndNoGap() {
        MakeModel.write(folder.resolve("m"), 42);
        BpeTokenizer tokenizer = BpeTokenizer.load(folder.resolve("m"));
        assertThat(tokenizer.size()).isEqualTo(MakeTokenizer.SIZE);
        assertThat(tokenizer.encode("Az\u00e9", true))
                .containsExactly(MakeTokenizer.BOS, 'A', 'z', 0xc3, 0xa9);
        for (int id = 0; id < MakeTokenizer.SIZE; id++) {
            boolean text = id != MakeTokenizer.BOS && id != MakeTokenizer.EOS;
            assertThat(tokenizer.decode(id).isEmpty()).as("token %s", id).isEqualTo(!text);
        }
    }

    @Test
    void generatesVariedReadableText() {
        MakeModel.write(folder.resolve("m"), 42);
        var options = OptionSchema.NONE.read("test", Map.of());
        try (var model =
                        new LlamaRunnerProvider()
                                .open(new ModelSource(folder.resolve("m"), options));
                var rig = new RunnerRig(model, 40)) {
            int[] prompt = model.tokenizer().encode("The sea was calm and the sky was grey.");
            int[] tokens = rig.generate(rig.sequence("a", prompt), 200);
            assertThat(Arrays.stream(tokens).distinct().count()).isGreaterThan(60);
            assertThat(Arrays.stream(tokens).allMatch(MakeTokenizer::readable)).isTrue();
            assertThat(model.tokenizer().decode(tokens)).matches("[ -~]+");
        }
    }
}
