// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.rank;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.model.SamplingOptions;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.worker.PlannedItem;
import io.kvferry.spi.kv.BlockTable;

import org.junit.jupiter.api.Test;

import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/// Tokens chosen from logits by the options of vLLM's API.
class SamplerTest {
    private static final int END = 9;
    private static final float[] LOGITS = {1, 4, 3, -1, 2, 0, 0, 0, 0, 3.5f};

    private final Sampler sampler = new Sampler(List.of(END));

    /// Prompt 1, 2; then generated 1, 1, 4.
    private record Item(int[] tokens, int promptTokens, SamplingParams sampling)
            implements PlannedItem {
        @Override
        public String requestId() {
            return "r1";
        }

        @Override
        public int start() {
            return 0;
        }

        @Override
        public int count() {
            return tokens.length;
        }

        @Override
        public int tokenAt(int position) {
            return tokens[position];
        }

        @Override
        public int changedFrom() {
            return 0;
        }

        @Override
        public BlockTable blocks() {
            throw new UnsupportedOperationException();
        }

        @Override
        public boolean sampled() {
            return true;
        }

        @Override
        public List<EncoderInput> inputs() {
            return List.of();
        }
    }

    private static SamplingOptions options(
            double presence, double frequency, double repetition, Map<Integer, Double> bias) {
        return new SamplingOptions(0, 0, presence, frequency, repetition, bias, 0, -1);
    }

    private static Item greedy(SamplingOptions options) {
        return new Item(
                new int[] {1, 2, 1, 1, 4}, 2, SamplingParams.greedy(50).withOptions(options));
    }

    private static Item drawing(SamplingOptions options, long seed) {
        var params = new SamplingParams(50, 1, 1, seed, List.of(), List.of(), false, options);
        return new Item(new int[] {1, 2}, 2, params);
    }

    private Set<Integer> drawn(SamplingOptions options) {
        var seen = new HashSet<Integer>();
        for (int seed = 0; seed < 500; seed++) {
            seen.add(sampler.pick(LOGITS, drawing(options, seed)));
        }
        return seen;
    }

    @Test
    void leavesTheLikeliestWithoutOptions() {
        assertThat(sampler.pick(LOGITS, greedy(SamplingOptions.NONE))).isEqualTo(1);
    }

    @Test
    void addsBias() {
        assertThat(sampler.pick(LOGITS, greedy(options(0, 0, 1, Map.of(3, 5.5))))).isEqualTo(3);
        assertThat(sampler.pick(LOGITS, greedy(options(0, 0, 1, Map.of(1, -100.0)))))
                .isEqualTo(END);
        assertThat(sampler.pick(LOGITS, greedy(options(0, 0, 1, Map.of(5000, 100.0)))))
                .isEqualTo(1);
    }

    @Test
    void penalisesWhatWasGeneratedOnceOrPerTime() {
        // 1 was generated twice: 4 - 0.4 > 3.5, and 4 - 2 * 0.4 < 3.5
        assertThat(sampler.pick(LOGITS, greedy(options(0.4, 0, 1, Map.of())))).isEqualTo(1);
        assertThat(sampler.pick(LOGITS, greedy(options(0, 0.4, 1, Map.of())))).isEqualTo(END);
        assertThat(sampler.pick(LOGITS, greedy(options(0.6, 0, 1, Map.of())))).isEqualTo(END);
    }

    @Test
    void penalisesRepetitionOfPromptAndAnswer() {
        // 1: 4 / 2, 2 (in the prompt): 3 / 2, 4: 2 / 2; nothing touches 9
        assertThat(sampler.pick(LOGITS, greedy(options(0, 0, 2, Map.of())))).isEqualTo(END);
        var bias = Map.of(END, -100.0);
        assertThat(sampler.pick(LOGITS, greedy(options(0, 0, 2, bias)))).isEqualTo(1);
        assertThat(sampler.pick(LOGITS, greedy(options(0, 0, 5, bias)))).isEqualTo(0);
    }

    @Test
    void keepsEndTokensBackUntilMinTokens() {
        var wanted = Map.of(END, 50.0);
        var early = new SamplingOptions(0, 0, 0, 0, 1, wanted, 4, -1);
        var late = new SamplingOptions(0, 0, 0, 0, 1, wanted, 3, -1);
        assertThat(sampler.pick(LOGITS, greedy(early))).isEqualTo(1);
        assertThat(sampler.pick(LOGITS, greedy(late))).isEqualTo(END);
    }

    @Test
    void drawsFromTheTopKAndMinPOnly() {
        assertThat(drawn(new SamplingOptions(2, 0, 0, 0, 1, Map.of(), 0, -1)))
                .containsExactlyInAnyOrder(1, END);
        assertThat(drawn(new SamplingOptions(1, 0, 0, 0, 1, Map.of(), 0, -1))).containsExactly(1);
        // exp(3.5 - 4) = 0.61, exp(3 - 4) = 0.37
        assertThat(drawn(new SamplingOptions(0, 0.5, 0, 0, 1, Map.of(), 0, -1)))
                .containsExactlyInAnyOrder(1, END);
        assertThat(drawn(SamplingOptions.NONE)).contains(0, 1, 2, 4, END);
    }

    @Test
    void tellsLogprobsOfTheModelsOwnLogits() {
        var item = greedy(new SamplingOptions(0, 0, 0, 0, 1, Map.of(3, 100.0), 0, 3));
        int token = sampler.pick(LOGITS, item);
        assertThat(token).isEqualTo(3);
        var logprobs = sampler.logprobs(LOGITS, item, token).orElseThrow();
        assertThat(logprobs.topTokens()).containsExactly(1, END, 2);
        double sum = 0;
        for (float logit : LOGITS) {
            sum += Math.exp(logit);
        }
        assertThat(logprobs.chosen()).isCloseTo((float) (-1 - Math.log(sum)), within(1e-5f));
        assertThat(logprobs.topLogprobs()[0]).isCloseTo((float) (4 - Math.log(sum)), within(1e-5f));
        assertThat(sampler.logprobs(LOGITS, greedy(SamplingOptions.NONE), 1)).isEmpty();
    }
}
