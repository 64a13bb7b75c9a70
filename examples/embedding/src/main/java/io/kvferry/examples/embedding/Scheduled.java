// SPDX-License-Identifier: Apache-2.0
package io.kvferry.examples.embedding;

import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.StepView;

import java.util.List;

/// The part of one request in a step.
///
/// @param from first position that is computed
/// @param count positions that are computed
record Scheduled(Request request, int from, int count) implements StepView.ScheduledRequest {
    int to() {
        return from + count;
    }

    @Override
    public boolean admitted() {
        return true; // every request of the loop runs in one step
    }

    @Override
    public int computedTokens() {
        return from;
    }

    @Override
    public int scheduledTokens() {
        return count;
    }

    @Override
    public BlockTable blocks() {
        return request.blocks();
    }

    /// A whole step.
    record Step(long number, List<Scheduled> parts) implements StepView {
        @Override
        public int scheduledCount() {
            return parts.size();
        }

        @Override
        public ScheduledRequest scheduled(int index) {
            return parts.get(index);
        }

        @Override
        public List<String> preempted() {
            return List.of();
        }
    }
}
