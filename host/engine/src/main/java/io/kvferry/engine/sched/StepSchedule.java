// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.worker.PlannedItem;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.StepView;

import java.util.AbstractList;
import java.util.ArrayList;
import java.util.List;
import java.util.RandomAccess;

/// What a step computes; reused from step to step.
public final class StepSchedule extends AbstractList<StepSchedule.ScheduledTokens>
        implements StepView, RandomAccess {
    private final List<ScheduledTokens> slots = new ArrayList<>();
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
        if (size == slots.size()) {
            slots.add(new ScheduledTokens(request));
        }
        slots.get(size++).set(request, from, count, first);
        tokens += count;
    }

    int tokens() {
        return tokens;
    }

    void discard(RequestState request) {
        for (int i = 0; i < size; i++) {
            if (slots.get(i).state() == request) {
                slots.get(i).discarded = true;
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
            var slot = slots.get(i);
            if (slot.discarded) {
                tokens -= slot.count();
            } else {
                slots.set(i, slots.get(kept));
                slots.set(kept++, slot);
            }
        }
        size = kept;
    }

    @Override
    public ScheduledTokens get(int index) {
        return slots.get(index);
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
        return slots.get(index);
    }

    @Override
    public List<String> preempted() {
        return preempted;
    }

    /// One request's part of the step that is planned; reused from step to step. References that
    /// stay the same are not written again, and what several readers of a step ask for is looked up
    /// once: with hundreds of running requests both count.
    public static final class ScheduledTokens implements PlannedItem, StepView.ScheduledRequest {
        private RequestState state;
        private int start;
        private int count;
        private int changedFrom;
        private boolean admitted;
        private boolean sampled;
        private SamplingParams sampling;
        private List<EncoderInput> inputs = List.of();

        /// The step's result is void, because a load it relied on failed or is late.
        boolean discarded;

        ScheduledTokens(RequestState state) {
            this.state = state;
            this.sampling = state.sampling();
        }

        void set(RequestState request, int from, int tokens, boolean first) {
            if (state != request) {
                state = request;
                sampling = request.sampling();
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
        public int promptTokens() {
            return state.promptTokenCount();
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
