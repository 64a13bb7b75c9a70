// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.wire.CacheShape;
import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.spi.Failure;
import io.kvferry.spi.observe.Stats;
import io.kvferry.toolkit.bounded.HeapPause;
import io.kvferry.toolkit.bounded.LoopReport;
import io.kvferry.toolkit.bounded.Outbox;
import io.kvferry.toolkit.bounded.SerialLoop;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.Map;
import java.util.function.BiConsumer;
import java.util.function.Consumer;

/// What both directions of one rank share. The [P2pWorker] owns it.
///
/// @param loop owns the state of both services
/// @param rank number of the rank
/// @param epoch of this engine
record RankParts(
        SerialLoop loop,
        SideChannel channel,
        DataPlane plane,
        CacheBlocks blocks,
        CacheShape shape,
        int rank,
        long epoch,
        P2pSettings settings,
        Outbox outbox) {
    private static final Logger LOG = LoggerFactory.getLogger(RankParts.class);

    /// Runs work on the loop, and repeats it while there is no memory for it. For work that is not
    /// requested again, and that may run twice.
    <T> void postUntilDone(Consumer<? super T> work, T value) {
        this.<T>onLoop(work).accept(value);
    }

    /// Runs `work` on the loop as [#postUntilDone] does, from any thread. Made ahead: a call takes
    /// memory for an entry of the queue only, for which it waits.
    <T> Consumer<T> onLoop(Consumer<? super T> work) {
        BiConsumer<T, T> once = (value, _) -> work.accept(value);
        Consumer<T> repeated = value -> untilDone(once, value, value);
        return value -> loop.post(repeated, value);
    }

    /// As [#postUntilDone], at once; on the loop.
    <A, B> void untilDone(BiConsumer<? super A, ? super B> work, A first, B second) {
        for (int attempt = 1; ; attempt++) {
            try {
                work.accept(first, second);
                return;
            } catch (OutOfMemoryError e) {
                if (HeapPause.isLast(attempt)) {
                    LoopReport.ERROR.log(LOG, "no memory for the end of a transfer", e);
                    return;
                }
                HeapPause.after(attempt, e);
            }
        }
    }

    /// Counts, unless there is no memory for it: nothing depends on a figure.
    void count(String name) {
        try {
            outbox.count(name);
        } catch (OutOfMemoryError _) {
            Thread.onSpinWait();
        }
    }

    /// As [#count(String)], with a number of bytes.
    void count(String name, String bytesName, long bytes) {
        try {
            var figures = Map.of(name, 1L, bytesName, bytes);
            outbox.record(new Stats(figures, Map.of(), Map.of()));
        } catch (OutOfMemoryError _) {
            Thread.onSpinWait();
        }
    }

    void refuse(SideChannel.Asker asker, Failure failure) {
        asker.answer(new PeerMessage.Refused(epoch, failure).encode());
    }
}
