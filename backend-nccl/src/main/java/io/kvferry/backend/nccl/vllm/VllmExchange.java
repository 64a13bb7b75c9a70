// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import io.kvferry.backend.nccl.gpu.TensorLanes;
import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.jspecify.annotations.Nullable;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import java.util.function.Function;

/// What one rank exchanges with the ranks of vLLM's P2pNcclEngine (protocol 0):
///
/// ```
/// prefiller, PUT   NEW, then for each layer PUT, "0", ncclSend         PutQueue
/// decoder, PUT     answers that, keeps tensors until they are loaded   ListeningEnd, ReceivedTensors
/// decoder, GET     NEW, then for each layer GET, found, ncclRecv       GetQueue
/// prefiller, GET   answers that while the engine holds the blocks      ListeningEnd, OfferedPrompts
/// ```
///
/// Each pair of ranks has one communicator, created by the side that starts, and one tensor in
/// flight. vLLM has neither time limits nor error codes; here every wait has a limit and ends with
/// a code.
///
/// Threading: any thread; no method waits for a peer but [#close], which waits for NCCL.
public final class VllmExchange implements AutoCloseable {
    private static final int MOST_PEERS = 256;
    private static final Duration REAP = Duration.ofMillis(250);
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(10);

    private final TensorLanes lanes;
    private final TensorForm form;
    private final SideChannel channel;
    private final VllmParts.Limits limits;
    private final Optional<ReceivedTensors> received;
    private final OfferedPrompts offered;
    private final ListeningEnd listening;
    private final ReentrantLock lock = new ReentrantLock();
    private final Map<PeerAddress, PutQueue> puts = new HashMap<>();
    private final Map<PeerAddress, GetQueue> gets = new HashMap<>();
    private String address = "";

    /// Queues that something is being given to.
    private int using;

    /// Transfers that may read or write blocks.
    private final AtomicInteger uses = new AtomicInteger();

    private boolean closed;

    /// What a decoder that is put to keeps until it is loaded.
    ///
    /// @param owner in the pool's reports
    /// @param bytes that it may occupy
    /// @param limit how long
    public record Staging(StagingPool pool, String owner, long bytes, Duration limit) {}

    /// @param limit for a connection to be established, and for a request to be answered
    /// @param avoided how long puts to a peer are refused after a failure
    /// @param staging on a decoder that receives puts; null on every other rank
    public VllmExchange(
            TensorLanes lanes,
            TensorForm form,
            SideChannel channel,
            Duration limit,
            Duration avoided,
            @Nullable Staging staging) {
        this.lanes = lanes;
        this.form = form;
        this.channel = channel;
        this.limits = new VllmParts.Limits(limit, limit, avoided);
        this.received =
                Optional.ofNullable(staging)
                        .map(its ->
                                new ReceivedTensors(
                                        form, its.pool, its.owner, its.bytes, its.limit));
        this.offered = new OfferedPrompts(form);
        this.listening = new ListeningEnd(parts(), received.orElse(null), offered);
    }

    private VllmParts parts() {
        return new VllmParts(lanes, form, channel, address, limits);
    }

    /// Binds the port; once, before anything else.
    ///
    /// @return `host:port`
    public String listen(String host, String bindHost, int port) {
        address =
                channel.listen(host, bindHost, port, port, listening).substring("tcp://".length());
        channel.every(
                REAP,
                () -> {
                    listening.reap();
                    received.ifPresent(ReceivedTensors::reap);
                    forgetIdle();
                });
        return address;
    }

    /// Starts to put a prompt.
    ///
    /// @param requestId the decoder's id of the request
    /// @param blocks of the prompt, all of them
    /// @param end called once, when its blocks are no longer read
    public DataPlane.Sending put(
            String requestId,
            PeerAddress peer,
            int[] blocks,
            Deadline deadline,
            Consumer<Outcome> end) {
        var counted = counted(end);
        return with(
                        puts,
                        peer,
                        PutQueue::new,
                        queue -> queue.put(requestId, blocks, deadline, counted))
                .orElseGet(() -> {
                    new BlockUse(counted).fail(full());
                    return NO_SENDING;
                });
    }

    /// Refuses puts to a peer for a while.
    public void avoid(PeerAddress peer) {
        var _ =
                with(
                        puts,
                        peer,
                        PutQueue::new,
                        queue -> {
                            queue.avoid();
                            return true;
                        });
    }

    /// Offers a prompt to any peer that gets it.
    ///
    /// @param end called once, when its blocks are no longer read; with Done if each layer was got
    ///   once
    public void offer(String requestId, int[] blocks, Consumer<Outcome> end) {
        var use = new BlockUse(counted(end));
        if (!offered.add(transfer(requestId), blocks, use)) {
            use.fail(new Failure(ErrorCode.ALREADY_ACTIVE, "two prompts of request " + requestId));
        }
    }

    public void withdraw(String requestId) {
        offered.withdraw(transfer(requestId));
    }

    /// A load that was begun.
    public interface Load {
        /// Cancels the load; its end is reported when no block is written any more.
        void cancel();

        /// Ends it where its limit has passed.
        void look();
    }

    /// Begins to load the last blocks of a prompt.
    ///
    /// @param gets whether the prefiller is asked; else it puts
    /// @param requestId as the prefiller calls the request
    /// @param promptBlocks that the whole prompt takes
    /// @param ids where the last ones of these go
    /// @param end told once, when its blocks are not written any more
    public Load load(
            boolean gets,
            String requestId,
            PeerAddress peer,
            int promptBlocks,
            int[] ids,
            Deadline deadline,
            Consumer<Outcome> end) {
        var use = new BlockUse(counted(end));
        var task =
                new LoadTask(
                        transfer(requestId), peer.toString(), promptBlocks, ids, deadline, use);
        if (gets) {
            var begun =
                    with(
                            this.gets,
                            peer,
                            GetQueue::new,
                            queue -> {
                                queue.get(requestId, task);
                                return true;
                            });
            if (begun.isEmpty()) {
                use.fail(full());
            }
        } else {
            received.orElseThrow().load(task);
        }
        return new Load() {
            @Override
            public void cancel() {
                if (gets) {
                    use.cancel();
                } else {
                    received.orElseThrow().revoke(task);
                }
            }

            @Override
            public void look() {
                if (gets && deadline.passed()) { // else the store of tensors does it
                    use.fail(new Failure(ErrorCode.TIMEOUT, "the tensors did not come in time"));
                }
            }
        };
    }

    /// What is put for a request is not wanted.
    public void refuse(String requestId) {
        received.ifPresent(store ->
                store.fail(
                        transfer(requestId),
                        new Failure(ErrorCode.CANCELLED, "the request does not load it")));
    }

    /// What both engines call the transfer of a request, see [TensorIds#transfer(String)].
    public static String transfer(String requestId) {
        return TensorIds.transfer(requestId).orElse(requestId);
    }

    /// Counts the use of blocks until its end was told.
    private Consumer<Outcome> counted(Consumer<Outcome> end) {
        uses.incrementAndGet();
        return outcome -> {
            try {
                end.accept(outcome);
            } finally {
                uses.decrementAndGet();
            }
        };
    }

    private interface Maker<Q> {
        Q make(VllmParts own, PeerAddress peer);
    }

    /// Uses the queue of a peer, which is not forgotten meanwhile. Empty where there can be none.
    private <Q, R> Optional<R> with(
            Map<PeerAddress, Q> queues, PeerAddress peer, Maker<Q> maker, Function<Q, R> use) {
        Q queue;
        lock.lock();
        try {
            queue = queues.get(peer);
            if (queue == null) {
                if (closed || queues.size() >= MOST_PEERS) {
                    return Optional.empty();
                }
                queue = maker.make(parts(), peer);
                queues.put(peer, queue);
            }
            using++;
        } finally {
            lock.unlock();
        }
        try {
            return Optional.of(use.apply(queue)); // it calls out: without the lock
        } finally {
            lock.lock();
            try {
                using--;
            } finally {
                lock.unlock();
            }
        }
    }

    /// Removes peers that are disconnected and have nothing queued.
    private void forgetIdle() {
        lock.lock();
        try {
            if (using > 0) {
                return; // the next time
            }
            puts.values().removeIf(PutQueue::isDown);
            gets.values().removeIf(GetQueue::isDown);
        } finally {
            lock.unlock();
        }
    }

    private Failure full() {
        return new Failure(ErrorCode.BACKPRESSURE, "closed, or more than " + MOST_PEERS + " peers");
    }

    /// Bytes of the staging pool that are occupied.
    public long staged() {
        return received.map(ReceivedTensors::taken).orElse(0L);
    }

    /// Peers that were refused a communicator since the last call: there are too many.
    public long takeRefusedPeers() {
        return listening.takeRefusedPeers();
    }

    public Optional<String> trouble() {
        return lanes.trouble();
    }

    /// Ends everything with CLOSED, and frees all memory but the engine's.
    ///
    /// @throws KvFerryException [ErrorCode#TIMEOUT] when something still reads or writes blocks:
    ///   the memory must stay in place; call it again
    @Override
    public void close() {
        List<PutQueue> allPuts;
        List<GetQueue> allGets;
        lock.lock();
        try {
            closed = true;
            allPuts = List.copyOf(puts.values());
            allGets = List.copyOf(gets.values());
        } finally {
            lock.unlock();
        }
        listening.close();
        allPuts.forEach(PutQueue::close);
        allGets.forEach(GetQueue::close);
        received.ifPresent(ReceivedTensors::close);
        offered.close();
        lanes.close();
        var limit = Deadline.in(CLOSE_LIMIT);
        while (uses.get() > 0) {
            if (limit.passed()) {
                throw new KvFerryException(
                        ErrorCode.TIMEOUT, "copies still use blocks after " + CLOSE_LIMIT);
            }
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(1));
        }
    }

    private static final DataPlane.Sending NO_SENDING =
            new DataPlane.Sending() {
                @Override
                public void available(int parts) {}

                @Override
                public boolean awaitSent(int parts, Deadline deadline) {
                    return false;
                }

                @Override
                public void commit() {}

                @Override
                public void abort() {}
            };
}
