// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.llama;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.within;

import io.kvferry.engine.model.Model;
import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.engine.model.ModelSource;
import io.kvferry.engine.model.RunnerContext;
import io.kvferry.runner.llama.RunnerRig.Sequence;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.RankInfo;

import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.ServiceLoader;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

class LlamaRunnerTest {
    private static final int BLOCK = RunnerRig.BLOCK;

    @TempDir static Path folder;

    @BeforeAll
    static void makeModel() {
        MakeModel.write(folder.resolve("m"), 42);
    }

    private static Model open() {
        var options = OptionSchema.NONE.read("test", Map.of());
        return new LlamaRunnerProvider().open(new ModelSource(folder.resolve("m"), options));
    }

    private static int[] prompt(long seed, int length) {
        int[] ids = new Random(seed).ints(length, ' ', 127).toArray();
        ids[0] = MakeTokenizer.BOS;
        return ids;
    }

    /// KV of the whole blocks of a sequence, and of the tail.
    private static List<byte[][]> kv(Sequence sequence) {
        var blocks = new ArrayList<byte[][]>();
        for (int at = 0; at < sequence.length(); at += BLOCK) {
            blocks.add(sequence.export(at / BLOCK, Math.min(BLOCK, sequence.length() - at)));
        }
        return blocks;
    }

    private static void assertSameBits(List<byte[][]> actual, List<byte[][]> expected) {
        assertThat(actual).hasSameSizeAs(expected);
        for (int block = 0; block < actual.size(); block++) {
            for (int layer = 0; layer < MakeModel.LAYERS; layer++) {
                assertThat(Arrays.mismatch(actual.get(block)[layer], expected.get(block)[layer]))
                        .as("first differing byte of block %s, layer %s", block, layer)
                        .isEqualTo(-1);
            }
        }
    }

    /// Greedy tokens of an independent float64 implementation (numpy) on the folder of seed 42.
    @Test
    void agreesWithAnIndependentImplementation() {
        try (Model model = open();
                var rig = new RunnerRig(model, 40)) {
            int[] first =
                    model.tokenizer().encode("It was the best of times, it was the worst of times");
            assertThat(rig.generate(rig.sequence("a", first), 24))
                    .containsExactly(
                            404, 456, 392, 403, 61, 329, 309, 82, 296, 44, 296, 44, 115, 86, 456,
                            295, 106, 385, 70, 106, 49, 93, 276, 120);
            int[] second = model.tokenizer().encode("Call me Ishmael.");
            Sequence sequence = rig.sequence("b", second);
            float[] logits = rig.compute(sequence, second.length);
            float[] some = {
                logits[32], logits[65], logits[101], logits[300], logits[400], logits[511]
            };
            assertThat(some)
                    .usingComparatorWithPrecision(2e-4f)
                    .containsExactly(-0.62556f, -0.05716f, -1.79274f, -0.35705f, 0.80142f, 0.8235f);
            assertThat(RunnerRig.largest(logits)).isEqualTo(40);
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 7, 16, 33, 255, 256, 300})
    void givesTheSameBitsForEveryChunkSize(int chunk) {
        int[] prompt = prompt(1, 601);
        try (Model model = open();
                var rig = new RunnerRig(model, 80)) {
            Sequence whole = rig.sequence("whole", prompt);
            float[] expected = rig.compute(whole, prompt.length);
            Sequence cut = rig.sequence("cut", prompt);
            float[] last = {};
            for (int at = 0; at < prompt.length; at += chunk) {
                last = rig.compute(cut, Math.min(chunk, prompt.length - at));
            }
            assertThat(last).isEqualTo(expected);
            assertSameBits(kv(cut), kv(whole));
        }
    }

    @Test
    void givesTheSameBitsWhateverElseIsInTheBatch() {
        int[] lengths = {1, 5, 16, 40, 333};
        try (Model model = open();
                var rig = new RunnerRig(model, 120)) {
            var together = new ArrayList<Sequence>();
            for (int length : lengths) {
                together.add(rig.sequence("t" + length, prompt(length, length)));
            }
            List<float[]> logits = rig.compute(together, Arrays.stream(lengths).boxed().toList());
            for (int i = 0; i < lengths.length; i++) {
                Sequence alone = rig.sequence("a" + i, prompt(lengths[i], lengths[i]));
                assertThat(rig.compute(alone, lengths[i])).isEqualTo(logits.get(i));
                assertSameBits(kv(together.get(i)), kv(alone));
            }
        }
    }

    /// Prefill in one instance, blocks exported, loaded into a fresh instance in any order, decode
    /// there.
    @Test
    void decodesTheSameTokensAndBitsFromEveryLoadedBlockPrefix() {
        int[] prompt = prompt(2, 77);
        try (Model producer = open();
                var p = new RunnerRig(producer, 20)) {
            Sequence source = p.sequence("p", prompt);
            int[] expected = p.generate(source, 40);
            List<byte[][]> blocks = kv(source);
            for (int k = 0; k <= prompt.length / BLOCK; k++) {
                try (Model consumer = open();
                        var d = new RunnerRig(consumer, 20)) {
                    Sequence sequence = d.sequence("d", prompt);
                    for (int b = k - 1; b >= 0; b--) {
                        sequence.load(b, blocks.get(b));
                    }
                    sequence.loaded(k * BLOCK);
                    assertThat(d.generate(sequence, 40))
                            .as("%s blocks loaded", k)
                            .isEqualTo(expected);
                    // the last token was appended, but not computed
                    List<byte[][]> whole = kv(sequence).subList(0, (prompt.length + 39) / BLOCK);
                    assertSameBits(whole, blocks.subList(0, whole.size()));
                }
            }
        }
    }

    /// In the first layer a token's value does not depend on its position and its key does, by
    /// rotation, in every head: what the label LBNHC promises to peers is `[token][head][K, then
    /// V]`.
    @Test
    void keepsEachHeadsValueBehindItsKey() {
        int[] prompt = new int[40];
        Arrays.fill(prompt, 'x');
        try (Model model = open();
                var rig = new RunnerRig(model, 4)) {
            Sequence sequence = rig.sequence("a", prompt);
            rig.compute(sequence, prompt.length);
            for (int head = 0; head < model.info().kvHeads(); head++) {
                for (int position = 1; position < prompt.length; position++) {
                    float[] key = sequence.vector(0, position, head, 0);
                    float[] first = sequence.vector(0, 0, head, 0);
                    assertThat(key).isNotEqualTo(first);
                    assertThat(norm(key)).isCloseTo(norm(first), within(1e-4));
                    assertThat(sequence.vector(0, position, head, 1))
                            .isEqualTo(sequence.vector(0, 0, head, 1));
                }
            }
            assertThat(sequence.vector(0, 0, 1, 1)).isNotEqualTo(sequence.vector(0, 0, 0, 1));
        }
    }

    /// The same bits in the places that the layout names, and the same numbers from blocks that
    /// came from elsewhere.
    @Test
    void computesTheSameWithHeadMajorBlocks() {
        int[] prompt = prompt(9, 70);
        try (Model model = open();
                var tokens = new RunnerRig(model, 8, KvLayout.LBNHC);
                var heads = new RunnerRig(model, 8, KvLayout.LBHNC);
                var other = new RunnerRig(model, 8, KvLayout.LBHNC)) {
            Sequence a = tokens.sequence("a", prompt);
            Sequence b = heads.sequence("b", prompt);
            float[] expected = tokens.compute(a, prompt.length);
            assertThat(heads.compute(b, prompt.length)).isEqualTo(expected);
            for (int layer = 0; layer < model.info().layers(); layer++) {
                for (int position = 0; position < prompt.length; position++) {
                    for (int at = 0; at < 2 * model.info().kvHeads(); at++) {
                        assertThat(b.vector(layer, position, at / 2, at % 2))
                                .isEqualTo(a.vector(layer, position, at / 2, at % 2));
                    }
                }
            }
            Sequence c = other.sequence("c", prompt);
            for (int block = 0; block < 3; block++) {
                for (int layer = 0; layer < model.info().layers(); layer++) {
                    c.load(block, layer, b.export(block)[layer]);
                }
            }
            c.loaded(3 * BLOCK);
            assertThat(other.compute(c, prompt.length - 3 * BLOCK)).isEqualTo(expected);
        }
    }

    private static double norm(float[] vector) {
        double squares = 0;
        for (float x : vector) {
            squares += x * x;
        }
        return Math.sqrt(squares);
    }

    @Test
    void waitsForEachLayerAndSaysWhenItIsDone() {
        int[] prompt = prompt(6, 600);
        try (Model model = open();
                var p = new RunnerRig(model, 50);
                var d = new RunnerRig(model, 50)) {
            Sequence source = p.sequence("p", prompt);
            float[] expected = p.compute(source, 600);
            Sequence sequence = d.sequence("d", prompt);
            sequence.loaded(3 * BLOCK);
            var calls = new ArrayList<String>();
            d.hooks(RunnerRig.layerwise(source, sequence, 3, calls));
            assertThat(d.compute(sequence, 600 - 3 * BLOCK)).isEqualTo(expected);
            assertThat(calls)
                    .containsExactly(
                            "before 0",
                            "after 0",
                            "before 1",
                            "after 1",
                            "before 2",
                            "after 2",
                            "before 3",
                            "after 3");
        }
    }

    @Test
    void computesAPreemptedRequestAgainWithTheSameBits() {
        try (Model model = open();
                var rig = new RunnerRig(model, 20)) {
            Sequence sequence = rig.sequence("a", prompt(3, 50));
            float[] before = rig.compute(sequence, 50);
            List<byte[][]> kv = kv(sequence);
            sequence.preempt();
            assertThat(rig.compute(sequence, 50)).isEqualTo(before);
            assertSameBits(kv(sequence), kv);
        }
    }

    @Test
    void givesTheSameBitsOnManyThreadsAtOnce() throws InterruptedException, ExecutionException {
        try (Model model = open();
                var pool = Executors.newFixedThreadPool(4)) {
            var tasks = new ArrayList<Callable<int[]>>();
            for (int i = 0; i < 8; i++) {
                tasks.add(() -> {
                    try (var rig = new RunnerRig(model, 20)) {
                        return rig.generate(rig.sequence("x", prompt(4, 100)), 30);
                    }
                });
            }
            int[] expected = tasks.getFirst().call();
            for (Future<int[]> result : pool.invokeAll(tasks)) {
                assertThat(result.get()).isEqualTo(expected);
            }
        } catch (InterruptedException | ExecutionException e) {
            throw e;
        } catch (Exception e) {
            throw new AssertionError(e);
        }
    }

    @Test
    void refusesWhatItCannotComputeAndStaysUsable() {
        try (Model model = open();
                var rig = new RunnerRig(model, 300)) {
            assertThatThrownBy(() -> rig.compute(rig.sequence("a", 512), 1))
                    .hasMessageContaining("token 512");
            assertThatThrownBy(() -> rig.compute(rig.sequence("b", new int[2049]), 2049))
                    .hasMessageContaining("position 2048 is outside");
            assertThat(rig.compute(rig.sequence("c", prompt(5, 2048)), 2048)).hasSize(512);
        }
    }

    @Test
    void refusesMoreThanOneRank() {
        try (Model model = open()) {
            var cache = model.info().cacheSpec(BLOCK, 4, 2);
            var context = new RunnerContext(new RankInfo(1, 2, 1, 2, 0, 1), cache, List.of());
            assertThatThrownBy(() -> model.openRunner(context))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.UNSUPPORTED));
        }
    }

    @Test
    void isFoundByServiceLoader() {
        assertThat(ServiceLoader.load(ModelRunnerProvider.class))
                .extracting(ModelRunnerProvider::name)
                .contains("llama");
    }

    @Test
    void tellsModelsApartByContent() {
        MakeModel.write(folder.resolve("other"), 43);
        MakeModel.write(folder.resolve("twin"), 42);
        var none = OptionSchema.NONE.read("test", Map.of());
        var provider = new LlamaRunnerProvider();
        try (Model one = open();
                Model twin = provider.open(new ModelSource(folder.resolve("twin"), none));
                Model other = provider.open(new ModelSource(folder.resolve("other"), none))) {
            assertThat(twin.info().digest()).isEqualTo(one.info().digest()).hasSize(64);
            assertThat(other.info().digest()).isNotEqualTo(one.info().digest());
            assertThat(one.info().runner()).isEqualTo("llama-1");
            assertThat(one.info().blockBytes(16, 1)).isEqualTo(2 * 16 * 64 * 4);
        }
    }
}
