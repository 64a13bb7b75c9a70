// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import io.kvferry.backend.nccl.gpu.TensorLane;
import io.kvferry.backend.nccl.wire.VllmMessage;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;

/// Answers the peers that connect to this rank: NEW makes a communicator of which this rank is the
/// second; PUT is received (decoder), GET is sent (prefiller).
///
/// Peers go by the identity that they give themselves. Each is served by a thread of its own, one
/// message after the other, so that a slow one stops no other. A message that cannot be served is
/// refused in the way that vLLM knows, and the next one is served.
///
/// Threading: as [SideChannel.Requests].
final class ListeningEnd implements SideChannel.Requests {
    private static final Logger LOG = LoggerFactory.getLogger(ListeningEnd.class);
    private static final int MOST_BYTES = 64 << 10;

    /// Less than a decoder waits for an answer.
    private static final Duration OFFER_WAIT = Duration.ofSeconds(5);

    private static final byte[] MISSING = new VllmMessage.Missing().encode();

    private static final Duration WARNED = Duration.ofSeconds(10);

    private final VllmParts own;
    private final @Nullable ReceivedTensors received;
    private final @Nullable OfferedPrompts offered;
    private final Callers callers = new Callers();
    private final AtomicLong refusedPeers = new AtomicLong();
    private final ReentrantLock lock = new ReentrantLock();
    private Deadline warned = Deadline.in(Duration.ZERO);

    /// @param received takes PUT; null for a rank that takes none
    /// @param offered serves GET; null for a rank that has nothing to get
    ListeningEnd(
            VllmParts own, @Nullable ReceivedTensors received, @Nullable OfferedPrompts offered) {
        this.own = own;
        this.received = received;
        this.offered = offered;
    }

    @Override
    public void onRequest(SideChannel.Asker asker, byte[] message) {
        if (message.length > MOST_BYTES) {
            LOG.debug("{} sent a request of {} bytes", asker.host(), message.length);
            return;
        }
        try {
            switch (VllmMessage.decode(message)) {
                case VllmMessage.New(var id) -> connect(asker, id);
                case VllmMessage.Put put -> {
                    serve(asker, VllmMessage.PUT_NO_MEMORY, caller -> put(caller, asker, put));
                }
                case VllmMessage.Get get -> {
                    serve(asker, MISSING, caller -> get(caller, asker, get));
                }
                case VllmMessage.Ping _,
                        VllmMessage.Goodbye _,
                        VllmMessage.Found _,
                        VllmMessage.Missing _ ->
                        LOG.debug("{} sent no request", asker.host());
            }
        } catch (KvFerryException e) {
            LOG.debug("{} sent no request: {}", asker.host(), e.toString());
        }
    }

    private interface Work {
        void on(Callers.Caller caller);
    }

    /// @param refusal sent when the peer has no communicator, or too many requests wait for it
    private void serve(SideChannel.Asker asker, byte[] refusal, Work work) {
        var caller = callers.find(asker);
        boolean taken =
                caller != null
                        && caller.strand.offer(() -> {
                            if (!callers.use(caller, true)) {
                                refuse(asker, refusal);
                                return;
                            }
                            try {
                                work.on(caller);
                            } finally {
                                callers.use(caller, false);
                            }
                        });
        if (!taken) {
            refuse(asker, refusal);
        }
    }

    private void refuse(SideChannel.Asker asker, byte[] refusal) {
        if (mayWarn()) {
            LOG.warn(
                    "a request of {} at {} is refused: it has no communicator, or asks too much at"
                            + " once",
                    asker.identity(),
                    asker.host());
        }
        asker.answer(refusal);
    }

    /// The same peer may ask for thousands of tensors.
    private boolean mayWarn() {
        lock.lock();
        try {
            boolean warns = warned.passed();
            if (warns) {
                warned = Deadline.in(WARNED);
            }
            return warns;
        } finally {
            lock.unlock();
        }
    }

    // ---- NEW

    private void connect(SideChannel.Asker asker, byte[] id) {
        var identity = asker.identity();
        if (identity.isEmpty()) {
            LOG.debug("{} says NEW and has no identity", asker.host());
            return;
        }
        var anew = new Failure(ErrorCode.PEER_LOST, identity + " has reconnected");
        callers.end(identity, anew);
        TensorLane lane;
        try {
            lane = own.lanes().open(identity, id, 1);
        } catch (KvFerryException e) {
            refuseNew(asker, e);
            return;
        }
        var caller = new Callers.Caller(identity, lane, asker);
        if (!callers.put(caller, anew)) {
            return;
        }
        caller.strand.add(() -> {
            try {
                lane.awaitReady();
                callers.use(caller, false);
            } catch (KvFerryException e) {
                LOG.warn("no communicator with {}: {}", identity, e.getMessage());
                callers.drop(caller);
            }
        });
    }

    /// vLLM has no answer to NEW. Its engine does not read this one, and one of kvferry's ends what
    /// waits for the communicator.
    private void refuseNew(SideChannel.Asker asker, KvFerryException why) {
        refusedPeers.incrementAndGet();
        if (mayWarn()) {
            LOG.warn(
                    "no communicator for {} at {}: {}",
                    asker.identity(),
                    asker.host(),
                    why.getMessage());
        }
        asker.answer(VllmMessage.PUT_NO_MEMORY);
    }

    /// Peers that were refused a communicator since the last call.
    long takeRefusedPeers() {
        return refusedPeers.getAndSet(0);
    }

    // ---- PUT, on the strand of the caller

    private void put(Callers.Caller caller, SideChannel.Asker asker, VllmMessage.Put put) {
        var store = received;
        var id = TensorIds.parse(put.tensorId());
        if (store == null || id.isEmpty()) {
            LOG.debug("{} puts {}", caller.identity, put.tensorId());
            asker.answer(VllmMessage.PUT_NO_MEMORY);
            return;
        }
        var transfer = id.get().transfer();
        boolean going = false;
        boolean laneFits = true;
        try {
            int blocks = own.form().blocks(put.shape(), put.dtype());
            int layer = own.form().position(id.get().layer());
            if (layer < 0) {
                throw new KvFerryException(
                        ErrorCode.INCOMPATIBLE, "the prefiller has layers that are not here");
            }
            var slot = store.begin(transfer, layer, caller.identity, blocks);
            long bytes = own.form().bytes(blocks);
            laneFits = false;
            var buffer = caller.lane.buffer(bytes);
            if (!asker.answer(VllmMessage.PUT_GO)) {
                throw new KvFerryException(ErrorCode.PEER_LOST, caller.identity + " has gone");
            }
            going = true;
            caller.lane.receive(bytes);
            laneFits = true;
            store.arrived(slot, buffer.asSlice(0, bytes));
        } catch (RuntimeException | Error e) { // the waiting caller must be notified
            var why = Failure.of(e);
            LOG.info("tensor {} of {}: {}", put.tensorId(), caller.identity, why);
            store.failPut(transfer, caller.identity, why);
            if (!going) {
                asker.answer(VllmMessage.PUT_NO_MEMORY);
            }
            if (!laneFits && (going || why.code() != ErrorCode.NO_MEMORY)) {
                callers.drop(caller); // the state of the peer is unknown
            }
        }
    }

    // ---- GET, on the strand of the caller

    private void get(Callers.Caller caller, SideChannel.Asker asker, VllmMessage.Get get) {
        var prompts = offered;
        var id = TensorIds.parse(get.tensorId());
        if (prompts == null || id.isEmpty()) {
            asker.answer(MISSING);
            return;
        }
        var offer = prompts.find(id.get().transfer(), OFFER_WAIT);
        int layer = own.form().position(id.get().layer());
        if (offer.isEmpty() || layer < 0) {
            asker.answer(MISSING);
            return;
        }
        var found = offer.get();
        boolean going = false;
        try {
            long bytes = own.form().bytes(found.blocks());
            var buffer = caller.lane.buffer(bytes);
            if (!found.gather(layer, buffer)) {
                asker.answer(MISSING);
                return;
            }
            going =
                    asker.answer(
                            new VllmMessage.Found(
                                            own.form().shape(found.blocks()), own.form().dtype())
                                    .encode());
            if (going) {
                caller.lane.send(bytes);
                found.sent(layer);
            }
        } catch (RuntimeException | Error e) { // as above
            var why = Failure.of(e);
            LOG.info("tensor {} for {}: {}", get.tensorId(), caller.identity, why);
            if (!going) {
                asker.answer(MISSING);
            }
            if (going || why.code() != ErrorCode.NO_MEMORY) {
                callers.drop(caller);
            }
        }
    }

    // ---- ends

    @Override
    public void onGone(SideChannel.Asker asker) {
        if (callers.gone(asker) && received != null) {
            received.peerLost(asker.identity());
        }
    }

    /// Forgets peers that have not come back.
    void reap() {
        callers.reap();
    }

    void close() {
        callers.close();
    }
}
