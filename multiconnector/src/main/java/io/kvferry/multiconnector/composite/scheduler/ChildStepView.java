// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.StepView;

import java.util.List;
import java.util.function.Function;

/// A step as a child sees it: each request with the child's params. Made only while a request with
/// namespaced params is live.
public record ChildStepView(StepView whole, Function<RequestView, RequestView> viewOf)
        implements StepView {
    @Override
    public long number() {
        return whole.number();
    }

    @Override
    public int scheduledCount() {
        return whole.scheduledCount();
    }

    @Override
    public ScheduledRequest scheduled(int index) {
        var scheduled = whole.scheduled(index);
        return new Renamed(scheduled, viewOf.apply(scheduled.request()));
    }

    @Override
    public List<String> preempted() {
        return whole.preempted();
    }

    private record Renamed(ScheduledRequest whole, RequestView request)
            implements ScheduledRequest {
        @Override
        public boolean admitted() {
            return whole.admitted();
        }

        @Override
        public int computedTokens() {
            return whole.computedTokens();
        }

        @Override
        public int scheduledTokens() {
            return whole.scheduledTokens();
        }

        @Override
        public BlockTable blocks() {
            return whole.blocks();
        }
    }
}
