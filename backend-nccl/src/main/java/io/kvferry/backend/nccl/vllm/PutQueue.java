// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.backend.nccl.wire.VllmMessage;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.LoopReport;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/// Puts the layers of prompts to one decoder, each as soon as it is computed: gather, PUT, answer,
/// `ncclSend`.
///
/// The last layer of a prompt waits until the prompt is committed. A decoder uses nothing before it
/// has all layers, so it never uses KV of a step that failed.
///
/// A layer lies in the buffer before it is announced: a decoder that has answered waits in
/// `ncclRecv`, where only the tensor releases it.
///
/// Threading: any thread; a virtual thread sends while there is something to send.
final class PutQueue {
    private static final Logger LOG = LoggerFactory.getLogger(PutQueue.class);
    private static final long LOOK_NANOS = TimeUnit.MILLISECONDS.toNanos(200);

    private final VllmParts own;
    private final PeerAddress peer;
    private final PeerLink link;
    private final ThreadFactory threads;
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private final List<Put> puts = new ArrayList<>();
    private boolean running;

    /// In a row. A peer that has lost its end of the link refuses, too.
    private int refusals;

    private boolean closed;
    private Deadline avoidedUntil = Deadline.in(Duration.ZERO);

    PutQueue(VllmParts own, PeerAddress peer) {
        this(own, peer, Thread.ofVirtual().name("p2p-put-" + peer).factory());
    }

    PutQueue(VllmParts own, PeerAddress peer, ThreadFactory threads) {
        this.own = own;
        this.peer = peer;
        this.link = new PeerLink(own, peer);
        this.threads = threads;
    }

    /// One prompt.
    private final class Put implements DataPlane.Sending {
        private final String requestId;
        private final int[] blocks;
        private final Deadline deadline;
        private final BlockUse use;
        private int available;
        private boolean committed;
        private int sent;

        Put(String requestId, int[] blocks, Deadline deadline, Consumer<Outcome> end) {
            this.requestId = requestId;
            this.blocks = blocks;
            this.deadline = deadline;
            this.use = new BlockUse(end);
        }

        @Override
        public void available(int parts) {
            change(() -> available = Math.max(available, parts));
        }

        @Override
        public void commit() {
            change(() -> {
                available = own.form().layers();
                committed = true;
            });
        }

        /// The last layer is sent after the commit; before that this does not wait for it.
        @Override
        public boolean awaitSent(int parts, Deadline limit) {
            lock.lock();
            try {
                while (sent < (committed ? parts : Math.min(parts, own.form().layers() - 1))) {
                    if (use.isOver() || limit.passed()) {
                        return false;
                    }
                    var _ = changed.awaitNanos(Math.min(limit.remainingNanos(), LOOK_NANOS));
                }
                return true;
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                return false;
            } finally {
                lock.unlock();
            }
        }

        @Override
        public void abort() {
            use.cancel();
            change(() -> {});
        }

        private boolean hasNext() {
            int layers = own.form().layers();
            return sent < Math.min(available, committed ? layers : layers - 1);
        }
    }

    private void change(Runnable change) {
        lock.lock();
        try {
            change.run();
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    /// Starts to put a prompt.
    ///
    /// @param end called once, when its blocks are no longer read
    DataPlane.Sending put(
            String requestId, int[] blocks, Deadline deadline, Consumer<Outcome> end) {
        var put = new Put(requestId, blocks, deadline, end);
        Failure refusal = null;
        lock.lock();
        try {
            if (closed) {
                refusal = new Failure(ErrorCode.CLOSED, "the connector is closed");
            } else if (!avoidedUntil.passed()) {
                refusal = new Failure(ErrorCode.BACKPRESSURE, peer + " has failed lately");
            } else {
                puts.add(put);
                if (!running) {
                    threads.newThread(this::run).start();
                    running = true;
                }
                changed.signalAll();
            }
        } catch (RuntimeException | Error e) { // no memory for a thread, for one
            puts.remove(put);
            refusal = Failure.of(e);
        } finally {
            lock.unlock();
        }
        if (refusal != null) {
            put.use.fail(refusal);
        }
        return put;
    }

    /// Refuses puts to this peer for a while.
    void avoid() {
        lock.lock();
        try {
            avoidedUntil = Deadline.in(own.limits().avoided());
        } finally {
            lock.unlock();
        }
    }

    private void run() {
        try {
            for (Put put; (put = next()) != null; ) {
                sendNext(put);
            }
        } catch (RuntimeException | Error e) {
            LoopReport.ERROR.log(LOG, "putting to {} failed", peer, e);
            try {
                link.drop(); // the decoder may wait for a tensor, and would take another for it
            } finally {
                endAll(Failure.of(e));
            }
        }
    }

    /// Fails all puts. This thread counts as running until there are none, so that one that is
    /// added meanwhile is failed too instead of waiting for a thread. Makes no copy: there may be
    /// no memory for it.
    private void endAll(Failure why) {
        for (Put put; (put = takeOrStop()) != null; ) {
            try {
                put.use.fail(why);
            } catch (RuntimeException | Error e) { // the others must end as well
                LoopReport.ERROR.log(LOG, "the end of a put to {} was not taken", peer, e);
            }
        }
    }

    /// Removes a put; if there is none, the queue has no thread any more.
    private @Nullable Put takeOrStop() {
        lock.lock();
        try {
            changed.signalAll();
            if (puts.isEmpty()) {
                running = false;
                return null;
            }
            return puts.removeFirst();
        } finally {
            lock.unlock();
        }
    }

    /// The next prompt with a layer to send; waits for one while there are prompts.
    private @Nullable Put next() {
        var late = new ArrayList<Put>();
        try {
            while (true) {
                lock.lock();
                try {
                    puts.removeIf(put -> put.use.isOver());
                    if (puts.isEmpty() || closed) {
                        running = false;
                        if (closed) {
                            link.drop();
                        }
                        return null;
                    }
                    for (var put : puts) {
                        if (put.hasNext()) {
                            return put;
                        }
                        if (put.deadline.passed()) {
                            late.add(put);
                        }
                    }
                    if (late.isEmpty()) {
                        var _ = changed.awaitNanos(LOOK_NANOS);
                    }
                } finally {
                    lock.unlock();
                }
                late.forEach(put ->
                        put.use.fail(
                                new Failure(ErrorCode.TIMEOUT, "not computed or sent in time")));
                late.clear();
            }
        } catch (InterruptedException e) { // this thread is never interrupted
            throw new IllegalStateException(e);
        }
    }

    /// Whether the peer has taken layers of other prompts; it would fail them if the link ended.
    private boolean othersGoOn(Put refused) {
        lock.lock();
        try {
            return puts.stream()
                    .anyMatch(put -> put != refused && put.sent > 0 && !put.use.isOver());
        } finally {
            lock.unlock();
        }
    }

    private void sendNext(Put put) {
        try {
            int layer = put.sent; // changed by this thread alone
            var lane = link.lane();
            long bytes = own.form().bytes(put.blocks.length);
            var buffer = lane.buffer(bytes);
            if (!put.use.copy(() -> own.form().gather(layer, put.blocks, buffer))) {
                return;
            }
            var answer =
                    link.ask(
                            new VllmMessage.Put(
                                    TensorIds.of(put.requestId, own.form().layer(layer)),
                                    own.form().shape(put.blocks.length),
                                    own.form().dtype()));
            if (Arrays.equals(answer, VllmMessage.PUT_NO_MEMORY)) {
                if (++refusals >= PeerLink.MOST_REFUSALS && !othersGoOn(put)) {
                    refusals = 0;
                    link.drop();
                }
                put.use.fail(
                        new Failure(
                                ErrorCode.NO_MEMORY, peer + " has no room, or refuses the tensor"));
            } else if (Arrays.equals(answer, VllmMessage.PUT_GO)) {
                refusals = 0;
                lane.send(bytes);
                change(() -> put.sent++);
                if (put.sent == own.form().layers()) {
                    put.use.finish(new Outcome.Done(bytes * put.sent));
                }
            } else {
                throw new KvFerryException(
                        ErrorCode.PROTOCOL,
                        peer + " answers a PUT with " + answer.length + " bytes of something else");
            }
        } catch (KvFerryException e) {
            if (e.code() == ErrorCode.NO_MEMORY) { // nothing was announced
                put.use.fail(Failure.of(e));
                return;
            }
            LOG.warn("{}: {}; the link is given up", peer, e.getMessage());
            link.drop();
            avoid();
            failAll(Failure.of(e));
        }
    }

    /// Whether there is nothing to put and no link; a link that is lost is dropped.
    boolean isDown() {
        lock.lock();
        try {
            return !running && avoidedUntil.passed() && link.isDown();
        } finally {
            lock.unlock();
        }
    }

    private void failAll(Failure why) {
        List<Put> all;
        lock.lock();
        try {
            all = List.copyOf(puts);
            changed.signalAll();
        } finally {
            lock.unlock();
        }
        all.forEach(put -> put.use.fail(why));
    }

    /// Ends all with CLOSED.
    void close() {
        boolean idle;
        lock.lock();
        try {
            closed = true;
            idle = !running;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
        failAll(new Failure(ErrorCode.CLOSED, "the connector is closed"));
        if (idle) {
            link.drop();
        } else {
            link.cut();
        }
    }
}
