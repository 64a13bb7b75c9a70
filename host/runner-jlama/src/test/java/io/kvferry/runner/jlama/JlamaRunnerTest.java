// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.jlama;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.within;

import com.github.tjake.jlama.model.llama.LlamaTokenizer;

import io.kvferry.engine.model.Model;
import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.engine.model.ModelSource;
import io.kvferry.runner.llama.LlamaRunnerProvider;
import io.kvferry.runner.llama.MakeModel;
import io.kvferry.runner.llama.RunnerRig;
import io.kvferry.runner.llama.RunnerRig.Sequence;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.memory.KvLayout;

import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ObjectNode;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.ServiceLoader;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

class JlamaRunnerTest {
    private static final int BLOCK = RunnerRig.BLOCK;
    private static final int BOS = 256;

    /// Jlama's sums differ from the reference by about 1e-5. Logits this close may change places;
    /// each case is printed.
    private static final float TIE = 1e-4f;

    @TempDir static Path temp;

    private static Path folder;

    @BeforeAll
    static void makeModel() {
        folder = temp.resolve("m");
        MakeModel.write(folder, 42);
    }

    private static Model open(ModelRunnerProvider provider, Path path) {
        return provider.open(new ModelSource(path, OptionSchema.NONE.read("test", Map.of())));
    }

    private static Model jlama() {
        return open(new JlamaRunnerProvider(), folder);
    }

    private static int[] prompt(Random random, int length) {
        int[] ids = random.ints(length, ' ', 127).toArray();
        ids[0] = BOS;
        return ids;
    }

    @Test
    void choosesTheTokensOfTheReference() {
        compareWithReference(16, 32);
    }

    @Test
    @Tag("soak")
    @Timeout(value = 30, unit = TimeUnit.MINUTES)
    void choosesTheTokensOfTheReferenceForManyPrompts() {
        compareWithReference(1000, 64);
    }

    /// Feeds the reference's tokens to both, so that one near tie is one finding and not the end of
    /// the comparison.
    private static void compareWithReference(int prompts, int tokens) {
        var random = new Random(11);
        try (Model theirs = jlama();
                Model ours = open(new LlamaRunnerProvider(), folder);
                var t = new RunnerRig(theirs, 60);
                var o = new RunnerRig(ours, 60)) {
            for (int i = 0; i < prompts; i++) {
                int[] prompt = prompt(random, 2 + random.nextInt(300));
                Sequence a = t.sequence("t" + i, prompt);
                Sequence b = o.sequence("o" + i, prompt);
                for (int n = 0; n < tokens; n++) {
                    int open = n == 0 ? prompt.length : 1;
                    float[] actual = t.compute(a, open);
                    float[] expected = o.compute(b, open);
                    assertThat(actual)
                            .usingComparatorWithPrecision(5e-4f)
                            .containsExactly(expected);
                    int best = RunnerRig.largest(expected);
                    int chosen = RunnerRig.largest(actual);
                    if (chosen != best) {
                        float gap = expected[best] - expected[chosen];
                        System.out.printf("prompt %d token %d: near tie, gap %g%n", i, n, gap);
                        assertThat(gap).as("gap at prompt %s, token %s", i, n).isLessThan(TIE);
                    }
                    a.append(best);
                    b.append(best);
                }
                a.end();
                b.end();
            }
        }
    }

    /// Both runners put every vector in the same place. Keys are compared by length: Jlama may
    /// rotate in another order.
    @ParameterizedTest
    @EnumSource(
            value = KvLayout.class,
            names = {"LBNHC", "LBHNC"})
    void laysOutBlocksAsTheReferenceDoes(KvLayout layout) {
        int[] prompt = prompt(new Random(18), 50);
        try (Model theirs = jlama();
                Model ours = open(new LlamaRunnerProvider(), folder);
                var t = new RunnerRig(theirs, 4, layout);
                var o = new RunnerRig(ours, 4, layout)) {
            Sequence a = t.sequence("a", prompt);
            Sequence b = o.sequence("b", prompt);
            t.compute(a, prompt.length);
            o.compute(b, prompt.length);
            for (int at = 0; at < prompt.length * ours.info().kvHeads(); at++) {
                int position = at / ours.info().kvHeads();
                int head = at % ours.info().kvHeads();
                for (int layer = 0; layer < ours.info().layers(); layer++) {
                    assertThat(a.vector(layer, position, head, 1))
                            .usingComparatorWithPrecision(1e-3f)
                            .containsExactly(b.vector(layer, position, head, 1));
                    assertThat(length(a.vector(layer, position, head, 0)))
                            .isCloseTo(length(b.vector(layer, position, head, 0)), within(1e-3));
                }
            }
        }
    }

    private static double length(float[] vector) {
        return Math.sqrt(
                IntStream.range(0, vector.length).mapToDouble(i -> vector[i] * vector[i]).sum());
    }

    /// Prefill in one instance, blocks exported, loaded into another in random order, the rest
    /// computed there.
    @Test
    void decodesTheSameTokensFromEveryLoadedBlockPrefix() {
        var random = new Random(12);
        int[] prompt = prompt(random, 205);
        try (Model producer = jlama();
                var p = new RunnerRig(producer, 20);
                Model consumer = jlama();
                var d = new RunnerRig(consumer, 20)) {
            Sequence source = p.sequence("p", prompt);
            int[] expected = p.generate(source, 24);
            for (int k = 0; k <= prompt.length / BLOCK; k++) {
                Sequence sequence = d.sequence("d" + k, prompt);
                List<Integer> order = new ArrayList<>(IntStream.range(0, k).boxed().toList());
                Collections.shuffle(order, random);
                order.forEach(b -> sequence.load(b, source.export(b)));
                sequence.loaded(k * BLOCK);
                assertThat(d.generate(sequence, 24)).as("%s blocks loaded", k).isEqualTo(expected);
                for (int b = 0; b < k; b++) {
                    assertThat(Arrays.deepEquals(sequence.export(b), source.export(b))).isTrue();
                }
                sequence.end();
            }
        }
    }

    /// Pages of Jlama hold 512 positions of this model; the prompt and its blocks span three.
    @Test
    void movesBlocksAcrossPagesAndComputesInChunks() {
        int[] prompt = prompt(new Random(13), 1205);
        try (Model model = jlama();
                var rig = new RunnerRig(model, 250)) {
            Sequence whole = rig.sequence("whole", prompt);
            int[] expected = rig.generate(whole, 16);
            Sequence moved = rig.sequence("moved", prompt);
            for (int b = 0; b < 75; b++) {
                moved.load(b, whole.export(b));
            }
            moved.loaded(75 * BLOCK);
            assertThat(rig.generate(moved, 16)).isEqualTo(expected);
            Sequence chunked = rig.sequence("chunked", prompt);
            rig.compute(chunked, 500);
            rig.compute(chunked, 513);
            assertThat(rig.generate(chunked, 16)).isEqualTo(expected);
        }
    }

    @Test
    void waitsForAllLayersAndSaysWhenTheyAreDone() {
        int[] prompt = prompt(new Random(17), 100);
        try (Model model = jlama();
                var p = new RunnerRig(model, 20);
                var d = new RunnerRig(model, 20)) {
            Sequence source = p.sequence("p", prompt);
            int expected = RunnerRig.largest(p.compute(source, 100));
            Sequence sequence = d.sequence("d", prompt);
            sequence.loaded(3 * BLOCK);
            var calls = new ArrayList<String>();
            d.hooks(RunnerRig.layerwise(source, sequence, 3, calls));
            assertThat(RunnerRig.largest(d.compute(sequence, 100 - 3 * BLOCK))).isEqualTo(expected);
            assertThat(calls)
                    .containsExactly(
                            "before 0",
                            "before 1",
                            "before 2",
                            "before 3",
                            "after 0",
                            "after 1",
                            "after 2",
                            "after 3");
        }
    }

    @Test
    void keepsRequestsApartInABatchAndAcrossPreemption() {
        var random = new Random(14);
        int[] first = prompt(random, 40);
        int[] second = prompt(random, 100);
        try (Model model = jlama();
                var rig = new RunnerRig(model, 60)) {
            int[] firstAlone = rig.generate(rig.sequence("1", first), 12);
            int[] secondAlone = rig.generate(rig.sequence("2", second), 12);
            Sequence a = rig.sequence("a", first);
            Sequence b = rig.sequence("b", second);
            List<float[]> logits = rig.compute(List.of(a, b), List.of(40, 100));
            assertThat(logits.stream().mapToInt(RunnerRig::largest))
                    .containsExactly(firstAlone[0], secondAlone[0]);
            b.preempt();
            assertThat(rig.generate(b, 12)).isEqualTo(secondAlone);
            a.append(firstAlone[0]);
            assertThat(rig.generate(a, 11)).isEqualTo(Arrays.copyOfRange(firstAlone, 1, 12));
        }
    }

    @Test
    void letsRunnersOfOneModelTakeTurns() throws Exception {
        int[] prompt = prompt(new Random(15), 64);
        try (Model model = jlama();
                var pool = Executors.newFixedThreadPool(3)) {
            Callable<int[]> task =
                    () -> {
                        try (var rig = new RunnerRig(model, 20)) {
                            return rig.generate(rig.sequence("x", prompt), 20);
                        }
                    };
            int[] expected = task.call();
            for (Future<int[]> result : pool.invokeAll(Collections.nCopies(6, task))) {
                assertThat(result.get()).isEqualTo(expected);
            }
        }
    }

    @Test
    void refusesPositionsBeyondJlamasTables() {
        try (Model model = jlama();
                var rig = new RunnerRig(model, 140)) {
            assertThat(model.info().contextTokens()).isEqualTo(2046);
            Sequence full = rig.sequence("full", prompt(new Random(16), 2046));
            assertThat(rig.compute(full, 2046)).hasSize(512);
            full.append(65);
            assertThatThrownBy(() -> rig.compute(full, 1)).hasMessageContaining("position 2046");
        }
    }

    @Test
    void agreesWithJlamasOwnTokenizerOnAscii() {
        var jlamas = new LlamaTokenizer(folder);
        try (Model model = jlama()) {
            for (String text :
                    List.of(
                            "It was the best of times",
                            "a  b\n\tc",
                            "x = (1 + 2) * 3;",
                            "don't we'll")) {
                int[] ids = Arrays.stream(jlamas.encode(text)).mapToInt(Math::toIntExact).toArray();
                assertThat(model.tokenizer().encode(text))
                        .startsWith(BOS)
                        .endsWith(ids)
                        .hasSize(ids.length + 1);
                assertThat(jlamas.decode(Arrays.stream(ids).asLongStream().toArray()))
                        .isEqualTo(text);
            }
        }
    }

    @ParameterizedTest
    @CsvSource({
        "model_type,'\"mistral\"',only llama was tried",
        "intermediate_size,200,no multiple of 16",
        "head_dim,64,head_dim",
        "rope_scaling,'{\"rope_type\":\"llama3\"}',rope_scaling",
        "num_key_value_heads,3,KV heads 3",
    })
    void refusesFoldersThatJlamaComputesWrongly(String key, String json, String hint)
            throws IOException {
        Path other = Files.createTempDirectory(temp, "bad");
        for (String name : List.of("tokenizer.json", "model.safetensors")) {
            Files.copy(folder.resolve(name), other.resolve(name));
        }
        var mapper = new JsonMapper();
        var config =
                (ObjectNode) mapper.readTree(Files.readAllBytes(folder.resolve("config.json")));
        config.set(key, mapper.readTree(json));
        Files.writeString(other.resolve("config.json"), config.toString());
        assertThatThrownBy(() -> open(new JlamaRunnerProvider(), other))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.INCOMPATIBLE))
                .hasMessageContaining(hint);
    }

    @Test
    void isFoundByServiceLoaderAndNamesItsVersionInTheNamespace() {
        assertThat(ServiceLoader.load(ModelRunnerProvider.class))
                .extracting(ModelRunnerProvider::name)
                .contains("jlama", "llama");
        try (Model model = jlama()) {
            assertThat(model.info().runner()).isEqualTo("jlama-0.8.4");
            assertThat(model.info().eosTokens()).containsExactly(257);
        }
    }
}
