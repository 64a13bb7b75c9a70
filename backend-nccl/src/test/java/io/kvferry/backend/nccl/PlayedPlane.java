// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.plane.Placement;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.spi.Deadline;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/// A data plane that moves nothing: a test says how its transfers end.
///
/// Threading: one thread at a time.
final class PlayedPlane implements DataPlane {
    final List<Transfer> windows = new ArrayList<>();
    final List<Transfer> sendings = new ArrayList<>();

    /// Of the next sending, when it is committed.
    Runnable onCommit = () -> {};

    /// Either end of a transfer.
    static final class Transfer implements Window, Sending {
        final Placement blocks;
        final Consumer<Outcome> end;
        private final Runnable onCommit;
        boolean givenUp;

        private Transfer(Placement blocks, Consumer<Outcome> end, Runnable onCommit) {
            this.blocks = blocks;
            this.end = end;
            this.onCommit = onCommit;
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
            onCommit.run();
        }

        @Override
        public void abort() {
            givenUp = true;
        }
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
        sendings.add(sending);
        return sending;
    }

    @Override
    public void close() {}
}
