// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.worker.PlannedItem;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.StepView;

import java.util.List;

/// One request's part of the step that is planned; reused from step to step.
final class ScheduledTokens implements PlannedItem, StepView.ScheduledRequest {
    private RequestState state;
    private int start;
    private int count;
    private int changedFrom;
    private boolean admitted;
    private List<EncoderInput> inputs = List.of();

    /// The step's result is void, because a load it relied on failed or is late.
    boolean discarded;

    ScheduledTokens(RequestState state) {
        this.state = state;
    }

    ScheduledTokens set(RequestState request, int from, int tokens, boolean first) {
        state = request;
        start = from;
        count = tokens;
        changedFrom = Math.min(request.runnerKnows, from);
        admitted = first;
        inputs = request.items.within(from, from + tokens);
        discarded = false;
        return this;
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
        return start + count == state.tokenCount();
    }

    @Override
    public SamplingParams sampling() {
        return state.sampling();
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
