// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.bounded.RecentMap;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/// Prompts whose blocks the engine holds until a decoder has got each layer once.
///
/// The client, and so the decoder, may learn of the end of a prefill before the engine's next step
/// offers its blocks. A GET for a prompt that is not offered therefore waits briefly, once.
///
/// Threading: any thread. Several peers may get one prompt at the same time.
final class OfferedPrompts {
    private static final int REMEMBERED = 1 << 14;

    private final TensorForm form;
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private final Map<String, Offer> offers = new HashMap<>();

    /// Those that were over, or that somebody has waited for.
    private final Map<String, Boolean> missed = new RecentMap<>(REMEMBERED);

    private boolean closed;

    OfferedPrompts(TensorForm form) {
        this.form = form;
    }

    /// One prompt.
    final class Offer {
        private final String transfer;
        private final int[] blocks;
        private final BlockUse use;
        private final Outcome done;

        /// Under the lock.
        private final BitSet got = new BitSet(form.layers());

        private Offer(String transfer, int[] blocks, BlockUse use) {
            this.transfer = transfer;
            this.blocks = blocks;
            this.use = use;
            this.done = new Outcome.Done(form.bytes(blocks.length) * form.layers());
        }

        int blocks() {
            return blocks.length;
        }

        /// @return false when the offer is over
        boolean gather(int layer, MemorySegment tensor) {
            return use.copy(() -> form.gather(layer, blocks, tensor));
        }

        /// The decoder has that layer.
        void sent(int layer) {
            lock.lock();
            try {
                got.set(layer);
                if (got.cardinality() < form.layers()) {
                    return;
                }
                offers.remove(transfer, this);
                remember(transfer);
            } finally {
                lock.unlock();
            }
            use.finish(done);
        }
    }

    /// @return false where the transfer is offered already, or the connector is closed
    boolean add(String transfer, int[] blocks, BlockUse use) {
        lock.lock();
        try {
            boolean added =
                    !closed
                            && offers.putIfAbsent(transfer, new Offer(transfer, blocks, use))
                                    == null;
            changed.signalAll();
            return added;
        } finally {
            lock.unlock();
        }
    }

    /// What is offered; the first time waits for it.
    Optional<Offer> find(String transfer, Duration wait) {
        var deadline = Deadline.in(wait);
        lock.lock();
        try {
            while (!offers.containsKey(transfer)
                    && !missed.containsKey(transfer)
                    && !closed
                    && !deadline.passed()) {
                var _ = changed.awaitNanos(deadline.remainingNanos());
            }
            var found = Optional.ofNullable(offers.get(transfer));
            if (found.isEmpty()) {
                missed.put(transfer, true);
            }
            return found;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return Optional.empty();
        } finally {
            lock.unlock();
        }
    }

    /// It is not offered any more, or will not be.
    void withdraw(String transfer) {
        @Nullable Offer offer;
        lock.lock();
        try {
            offer = offers.remove(transfer);
            remember(transfer);
            changed.signalAll();
        } finally {
            lock.unlock();
        }
        if (offer != null) {
            offer.use.cancel();
        }
    }

    /// Has nobody wait for that transfer. Without memory the next GET waits once: the use of the
    /// blocks ends all the same.
    private void remember(String transfer) {
        try {
            missed.put(transfer, true);
        } catch (OutOfMemoryError _) {
            Thread.onSpinWait();
        }
    }

    void close() {
        List<String> all;
        lock.lock();
        try {
            closed = true;
            all = List.copyOf(offers.keySet());
            changed.signalAll();
        } finally {
            lock.unlock();
        }
        all.forEach(this::withdraw);
    }
}
