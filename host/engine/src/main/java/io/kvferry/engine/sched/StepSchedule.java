// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.model.SamplingOptions;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.worker.PlannedItem;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.StepView;

import java.util.AbstractList;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.RandomAccess;

/// What a step computes; reused from step to step.
public final class StepSchedule extends AbstractList<StepSchedule.ScheduledTokens>
        implements StepView, RandomAccess {
    private ScheduledTokens[] slots = {};
    private int size;
    private int tokens;
    private long number;
    private boolean anyDiscarded;
    List<String> preempted = new ArrayList<>();

    /// Whether requests ended since the previous step: connectors may have something for a plan.
    boolean finished;

    void begin(long step) {
        number = step;
        size = 0;
        tokens = 0;
        anyDiscarded = false;
    }

    void add(RequestState request, int from, int count, boolean first) {
        if (size == slots.length) {
            slots = Arrays.copyOf(slots, Math.max(16, 2 * size)); // the new ones are empty
        }
        if (slots[size] == null) {
            slots[size] = new ScheduledTokens(request);
        }
        slots[size++].set(request, from, count, first);
        tokens += count;
    }

    int tokens() {
        return tokens;
    }

    void discard(RequestState request) {
        for (int i = 0; i < size; i++) {
            if (slots[i].state() == request) {
                slots[i].discarded = true;
                anyDiscarded = true;
            }
        }
    }

    /// Takes discarded parts out of a step that has not begun: their requests have no blocks any
    /// more.
    void removeDiscarded() {
        if (!anyDiscarded) {
            return;
        }
        int kept = 0;
        for (int i = 0; i < size; i++) {
            var slot = slots[i];
            if (slot.discarded) {
                tokens -= slot.count();
            } else {
                slots[i] = slots[kept];
                slots[kept++] = slot;
            }
        }
        size = kept;
    }

    @Override
    public ScheduledTokens get(int index) {
        return slots[Objects.checkIndex(index, size)];
    }

    @Override
    public int size() {
        return size;
    }

    @Override
    public long number() {
        return number;
    }

    @Override
    public int scheduledCount() {
        return size;
    }

    @Override
    public ScheduledRequest scheduled(int index) {
        return get(index);
    }

    @Override
    public List<String> preempted() {
        return preempted;
    }

    /// One request's part of the step that is planned; reused from step to step. References that
    /// stay the same are not written again, and what a step asks of each request is kept here: with
    /// hundreds of running requests, following references to their parts takes most of the time.
    public static final class ScheduledTokens implements PlannedItem, StepView.ScheduledRequest {
        private RequestState state;
        private int start;
        private int count;
        private int changedFrom;
        private boolean admitted;
        private boolean sampled;
        private SamplingParams sampling;
        private boolean plain;
        private boolean scoresPrompt;
        private List<EncoderInput> inputs = List.of();

        /// The step's result is void, because a load it relied on failed or is late.
        boolean discarded;

        ScheduledTokens(RequestState state) {
            this.state = state;
            this.sampling = state.sampling();
            lookUpOptions();
        }

        private void lookUpOptions() {
            plain = sampling.options().equals(SamplingOptions.NONE);
            scoresPrompt = sampling.options().scoresPrompt();
        }

        void set(RequestState request, int from, int tokens, boolean first) {
            if (state != request) {
                state = request;
                sampling = request.sampling();
                lookUpOptions();
            }
            start = from;
            count = tokens;
            changedFrom = Math.min(request.runnerKnows, from);
            admitted = first;
            sampled = from + tokens == request.tokenCount();
            if (request.hasItems) {
                inputs = request.items.within(from, from + tokens);
            } else if (!inputs.isEmpty()) {
                inputs = List.of();
            }
            discarded = false;
        }

        RequestState state() {
            return state;
        }

        @Override
        public String requestId() {
            return state.id;
        }

        @Override
        public int start() {
            return start;
        }

        @Override
        public int count() {
            return count;
        }

        @Override
        public int tokenAt(int position) {
            return state.token(position);
        }

        @Override
        public int changedFrom() {
            return changedFrom;
        }

        @Override
        public BlockTable blocks() {
            return state.blocks;
        }

        @Override
        public boolean sampled() {
            return sampled;
        }

        @Override
        public SamplingParams sampling() {
            return sampling;
        }

        @Override
        public boolean isPlain() {
            return plain;
        }

        @Override
        public int promptTokens() {
            return state.promptTokenCount();
        }

        @Override
        public int promptLogits() {
            return scoresPrompt ? PlannedItem.super.promptLogits() : 0;
        }

        @Override
        public List<EncoderInput> inputs() {
            return inputs;
        }

        @Override
        public RequestView request() {
            return state;
        }

        @Override
        public boolean admitted() {
            return admitted;
        }

        @Override
        public int computedTokens() {
            return start;
        }

        @Override
        public int scheduledTokens() {
            return count;
        }
    }
}
