// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.plane.Placement;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.spi.Deadline;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import java.util.stream.Stream;

/// A data plane that moves nothing: a test says how its transfers end.
///
/// Threading: any thread; the hooks are set before the transfers that they are for.
final class PlayedPlane implements DataPlane {
    final List<Transfer> windows = new CopyOnWriteArrayList<>();
    final List<Transfer> sendings = new CopyOnWriteArrayList<>();

    /// Of each transfer, before its caller has it; one that this throws for does not begin.
    Consumer<Transfer> onBegin = _ -> {};

    volatile boolean closed;

    /// Of the next sending, when it is committed.
    Runnable onCommit = () -> {};

    /// Either end of a transfer.
    static final class Transfer implements Window, Sending {
        final Placement blocks;
        private final Consumer<Outcome> told;
        private final Runnable onCommit;
        private final AtomicBoolean ended = new AtomicBoolean();
        volatile boolean givenUp;
        volatile boolean committed;

        private Transfer(Placement blocks, Consumer<Outcome> told, Runnable onCommit) {
            this.blocks = blocks;
            this.told = told;
            this.onCommit = onCommit;
        }

        /// Tells its end, the first time.
        void end(Outcome outcome) {
            if (ended.compareAndSet(false, true)) {
                told.accept(outcome);
            }
        }

        boolean isOpen() {
            return !ended.get();
        }

        @Override
        public void withdraw() {
            givenUp = true;
        }

        @Override
        public void withdrawUnused() {
            givenUp = true;
        }

        @Override
        public void available(int parts) {}

        @Override
        public boolean awaitSent(int parts, Deadline deadline) {
            return false;
        }

        @Override
        public void commit() {
            committed = true;
            onCommit.run();
        }

        @Override
        public void abort() {
            givenUp = true;
        }
    }

    /// Those that have not ended.
    List<Transfer> open() {
        return Stream.concat(windows.stream(), sendings.stream()).filter(Transfer::isOpen).toList();
    }

    @Override
    public String kind() {
        return "played";
    }

    @Override
    public String address() {
        return "127.0.0.1:9";
    }

    @Override
    public Window receive(Grant grant, Placement target, Deadline deadline, Consumer<Outcome> end) {
        var window = new Transfer(target, end, () -> {});
        onBegin.accept(window);
        windows.add(window);
        return window;
    }

    @Override
    public Sending send(
            String address,
            Grant grant,
            Placement source,
            Deadline deadline,
            Consumer<Outcome> end) {
        var sending = new Transfer(source, end, onCommit);
        onCommit = () -> {};
        onBegin.accept(sending);
        sendings.add(sending);
        return sending;
    }

    @Override
    public void close() {
        closed = true;
    }
}
