// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.harness;

import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.StepView;

import java.util.List;

/// The live views that a harness passes to connectors. Each throws when used after its call, and
/// all scheduled requests share one view object, so a connector that keeps a view is detected.
final class HarnessViews {
    private HarnessViews() {}

    /// A block table for one call.
    static final class Table implements BlockTable, AutoCloseable {
        private final int[][] blocks;
        private boolean open = true;

        Table(int[][] blocks) {
            this.blocks = blocks;
        }

        private void use() {
            if (!open) {
                throw new AssertionError("a block table was used after the call it was passed to");
            }
        }

        @Override
        public int groups() {
            use();
            return blocks.length;
        }

        @Override
        public int count(int group) {
            use();
            return blocks[group].length;
        }

        @Override
        public int block(int group, int position) {
            use();
            return blocks[group][position];
        }

        @Override
        public void close() {
            open = false;
        }
    }

    /// A request with the number of tokens to compute in a step.
    record Scheduled(HarnessRequest request, int tokens, boolean admitted) {}

    /// A step for one call of `buildPlan`.
    static final class Step implements StepView, AutoCloseable {
        private final long number;
        private final List<Scheduled> scheduled;
        private final List<String> preempted;
        private final Cursor cursor = new Cursor();
        private boolean open = true;
        private int index;
        private Table table = new Table(new int[0][]);

        Step(long number, List<Scheduled> scheduled, List<String> preempted) {
            this.number = number;
            this.scheduled = List.copyOf(scheduled);
            this.preempted = List.copyOf(preempted);
        }

        private void use() {
            if (!open) {
                throw new AssertionError("a step view was used after buildPlan() had returned");
            }
        }

        @Override
        public long number() {
            use();
            return number;
        }

        @Override
        public int scheduledCount() {
            use();
            return scheduled.size();
        }

        @Override
        public ScheduledRequest scheduled(int at) {
            use();
            index = at;
            table.close();
            table = new Table(scheduled.get(at).request.blocks);
            return cursor;
        }

        @Override
        public List<String> preempted() {
            use();
            return preempted;
        }

        @Override
        public void close() {
            open = false;
            table.close();
        }

        /// The one view of whichever request was asked for last.
        private final class Cursor implements ScheduledRequest {
            @Override
            public RequestView request() {
                use();
                return scheduled.get(index).request.view();
            }

            @Override
            public boolean admitted() {
                use();
                return scheduled.get(index).admitted;
            }

            @Override
            public int computedTokens() {
                use();
                return scheduled.get(index).request.computed;
            }

            @Override
            public int scheduledTokens() {
                use();
                return scheduled.get(index).tokens;
            }

            @Override
            public BlockTable blocks() {
                use();
                return table;
            }
        }
    }
}
