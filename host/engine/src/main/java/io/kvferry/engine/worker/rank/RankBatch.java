// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.rank;

import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.model.StepBatch;
import io.kvferry.engine.worker.PlannedItem;
import io.kvferry.engine.worker.RankResult;
import io.kvferry.engine.worker.StepPlan;
import io.kvferry.spi.kv.BlockTable;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;

/// The plan of a step as the runner of one rank sees it: without the items whose encoder outputs
/// are missing. One per rank, reused.
final class RankBatch implements StepBatch {
    private final EncoderMemory encoderCache;

    /// By item: requests mostly keep their place from step to step, and a view that shows the same
    /// item again is not written.
    private View[] views = {};

    private List<? extends PlannedItem> planned = List.of();
    private List<String> ended = List.of();
    private int[] kept = new int[16];
    private int size;
    private long step;

    RankBatch(EncoderMemory encoderCache) {
        this.encoderCache = encoderCache;
    }

    void reset(StepPlan plan, RankResult result) {
        planned = plan.items();
        ended = plan.ended();
        step = plan.number();
        size = 0;
        if (views.length < planned.size()) {
            views = Arrays.copyOf(views, Math.max(planned.size(), 2 * views.length));
        }
        if (kept.length < planned.size()) {
            kept = Arrays.copyOf(kept, Math.max(planned.size(), 2 * kept.length));
        }
        for (int i = 0; i < planned.size(); i++) {
            if (complete(planned.get(i))) {
                show(size, planned.get(i));
                kept[size++] = i;
            } else {
                result.skip(i);
            }
        }
    }

    private void show(int index, PlannedItem item) {
        var view = views[index];
        if (view == null || view.item != item) {
            views[index] = new View(item);
        }
    }

    private boolean complete(PlannedItem item) {
        var inputs = item.inputs();
        for (int i = 0; i < inputs.size(); i++) {
            if (encoderCache.get(inputs.get(i).hash()).isEmpty()) {
                return false;
            }
        }
        return true;
    }

    /// Position in the plan of the runner's `index`-th item.
    int planned(int index) {
        return kept[Objects.checkIndex(index, size)];
    }

    PlannedItem item(StepPlan plan, int index) {
        return plan.items().get(planned(index));
    }

    @Override
    public long step() {
        return step;
    }

    @Override
    public int size() {
        return size;
    }

    @Override
    public Item item(int index) {
        return views[Objects.checkIndex(index, size)];
    }

    @Override
    public List<String> ended() {
        return ended;
    }

    private final class View implements Item {
        private final PlannedItem item;

        View(PlannedItem item) {
            this.item = item;
        }

        @Override
        public String requestId() {
            return item.requestId();
        }

        @Override
        public int start() {
            return item.start();
        }

        @Override
        public int count() {
            return item.count();
        }

        @Override
        public int token(int i) {
            return item.tokenAt(item.start() + Objects.checkIndex(i, item.count()));
        }

        @Override
        public int tokenAt(int position) {
            return item.tokenAt(position);
        }

        @Override
        public int changedFrom() {
            return item.changedFrom();
        }

        @Override
        public BlockTable blocks() {
            return item.blocks();
        }

        @Override
        public boolean sampled() {
            return item.sampled();
        }

        @Override
        public int promptLogits() {
            return item.promptLogits();
        }

        @Override
        public SamplingParams sampling() {
            return item.sampling();
        }

        @Override
        public List<Embedding> embeddings() {
            if (item.inputs().isEmpty()) {
                return List.of();
            }
            var found = new ArrayList<Embedding>();
            for (EncoderInput input : item.inputs()) {
                encoderCache
                        .get(input.hash())
                        .ifPresent(output -> found.add(new Embedding(input.position(), output)));
            }
            return found;
        }
    }
}
