// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.wire.CacheShape;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.backend.nccl.wire.PromptMark;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.observe.Stats;
import io.kvferry.toolkit.bounded.Outbox;
import io.kvferry.toolkit.bounded.RecentMap;
import io.kvferry.toolkit.bounded.SerialLoop;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/// What one rank is to decode: loads, and what was pushed before its load.
///
/// A transfer goes through these states:
///
/// ```
/// STAGING   pushed before its load, into the staging pool      -> STAGED, or gone when it fails
/// STAGED    all of it is in the staging pool                   -> COPYING when its load comes
/// COPYING   from the staging pool into the load's blocks       -> gone
/// PULLING   asked for by its load, into the load's blocks; an
///           offer that comes meanwhile is granted the same     -> gone
/// ```
///
/// A load whose push fails while STAGING pulls; one whose pull fails for a reason that may pass
/// pulls once more. Every load ends once, and its prefiller hears when it need not hold anything.
///
/// Threading: confined to the loop; public methods post to it.
final class ReceiveService {
    private static final Logger LOG = LoggerFactory.getLogger(ReceiveService.class);
    private static final int REMEMBERED = 1 << 14;
    private static final int MOST_PULLS = 2;
    private static final Duration CONNECT_LIMIT = Duration.ofSeconds(10);

    private final SerialLoop loop;
    private final SerialLoop copies;
    private final SideChannel channel;
    private final DataPlane plane;
    private final CacheBlocks blocks;
    private final CacheShape shape;
    private final int rank;
    private final long epoch;
    private final P2pSettings settings;
    private final StagedBlocks staging;
    private final Outbox outbox;
    private final Map<String, Arrival> arrivals = new HashMap<>();
    private final Map<TransferId, Arrival> loads = new HashMap<>();
    private final Map<TransferId, Boolean> revoked = new RecentMap<>(REMEMBERED);

    /// Transfers that nobody here wants any more.
    private final Map<String, Boolean> finished = new RecentMap<>(REMEMBERED);

    private enum State {
        STAGING,
        STAGED,
        COPYING,
        PULLING
    }

    private static final class Arrival {
        private final String transfer;
        private State state;
        private final int[] counts;
        private final PromptMark prompt;
        private P2pPlan.@Nullable Load load;
        private StagedBlocks.@Nullable Lease staged;
        private DataPlane.@Nullable Window window;
        private @Nullable Grant grant;
        private @Nullable Failure refusal;
        private SideChannel.Timer expiry = () -> {};
        private boolean answered;
        private boolean unwanted;
        private int pulls;

        Arrival(String transfer, State state, int[] counts, PromptMark prompt) {
            this.transfer = transfer;
            this.state = state;
            this.counts = counts;
            this.prompt = prompt;
        }
    }

    ReceiveService(
            SerialLoop loop,
            SerialLoop copies,
            SideChannel channel,
            DataPlane plane,
            CacheBlocks blocks,
            CacheShape shape,
            int rank,
            long epoch,
            P2pSettings settings,
            StagedBlocks staging,
            Outbox outbox) {
        this.loop = loop;
        this.copies = copies;
        this.channel = channel;
        this.plane = plane;
        this.blocks = blocks;
        this.shape = shape;
        this.rank = rank;
        this.epoch = epoch;
        this.settings = settings;
        this.staging = staging;
        this.outbox = outbox;
    }

    void load(P2pPlan.Load plan) {
        loop.post(() -> onLoad(plan));
    }

    void release(P2pPlan.Release plan) {
        loop.post(() -> {
            finished.put(plan.transfer(), true);
            var arrival = arrivals.get(plan.transfer());
            if (arrival != null && arrival.load == null) {
                drop(arrival);
            }
            tellRelease(plan.transfer(), plan.prefiller());
        });
    }

    void revoke(TransferId id) {
        loop.post(() -> onRevoked(id));
    }

    /// A prefiller has something to push. On the loop.
    void onOffer(SideChannel.Asker asker, PeerMessage.Offer offer) {
        var transfer = offer.transfer();
        var trouble = P2pWorker.misfit(transfer, epoch, shape);
        if (trouble.isPresent()) {
            refuse(asker, trouble.get());
            return;
        }
        var arrival = arrivals.get(transfer.id());
        if (arrival != null) {
            answerKnown(asker, arrival, transfer);
        } else if (finished.containsKey(transfer.id())) {
            refuse(asker, new Failure(ErrorCode.CANCELLED, "nobody here wants it any more"));
        } else {
            stage(asker, transfer);
        }
    }

    private void answerKnown(
            SideChannel.Asker asker, Arrival arrival, PeerMessage.Transfer transfer) {
        var grant = arrival.grant;
        if (arrival.state != State.PULLING || grant == null || arrival.pulls > 1) {
            refuse(asker, new Failure(ErrorCode.ALREADY_ACTIVE, "offered before"));
        } else if (!transfer.prompt().equals(arrival.prompt)
                || !fewerOrEqual(arrival.counts, transfer.counts())) {
            refuse(asker, new Failure(ErrorCode.INCOMPATIBLE, "the decoder has another prompt"));
        } else {
            asker.answer(granted(grant, arrival.counts));
        }
    }

    private byte[] granted(Grant grant, int[] counts) {
        long credit = 0;
        for (long bytes : blocks.partBytes(counts)) {
            credit += bytes;
        }
        return new PeerMessage.Granted(epoch, grant, plane.address(), counts, credit).encode();
    }

    private void refuse(SideChannel.Asker asker, Failure failure) {
        outbox.count("p2p_offers_refused");
        asker.answer(new PeerMessage.Refused(epoch, failure).encode());
    }

    private static boolean fewerOrEqual(int[] wanted, int[] offered) {
        if (wanted.length != offered.length) {
            return false;
        }
        for (int i = 0; i < wanted.length; i++) {
            if (wanted[i] > offered[i]) {
                return false;
            }
        }
        return true;
    }

    private void stage(SideChannel.Asker asker, PeerMessage.Transfer transfer) {
        var arrival =
                new Arrival(
                        transfer.id(), State.STAGING, transfer.counts().clone(), transfer.prompt());
        StagedBlocks.Lease lease;
        try {
            lease = staging.take(transfer.counts());
        } catch (KvFerryException e) {
            refuse(asker, e.toFailure());
            return;
        }
        arrival.staged = lease;
        arrivals.put(arrival.transfer, arrival);
        var grant = Grant.draw();
        arrival.grant = grant;
        arrival.window =
                plane.receive(
                        grant,
                        lease.placement(),
                        Deadline.in(settings.transferLimit()),
                        outcome -> loop.post(() -> onStaged(arrival, outcome)));
        // A sender comes at once, or has given up the step by then: its load is to pull instead.
        arrival.expiry =
                channel.after(
                        settings.pushLimit().multipliedBy(2),
                        () -> loop.post(() -> withdrawUnused(arrival)));
        asker.answer(granted(grant, arrival.counts));
    }

    private static void withdrawUnused(Arrival arrival) {
        if (arrival.window != null) {
            arrival.window.withdrawUnused();
        }
    }

    private void onStaged(Arrival arrival, Outcome outcome) {
        arrival.window = null;
        arrival.expiry.cancel();
        if (arrival.unwanted) {
            forget(arrival);
            return;
        }
        switch (outcome) {
            case Outcome.Done(var bytes) -> {
                received(bytes);
                arrival.state = State.STAGED;
                if (arrival.load != null) {
                    copy(arrival);
                } else {
                    arrival.expiry =
                            channel.after(
                                    settings.stagedLimit(), () -> loop.post(() -> expire(arrival)));
                }
            }
            case Outcome.Failed(var failure) -> {
                LOG.debug("push of {} failed: {}", arrival.transfer, failure);
                var load = arrival.load;
                forget(arrival);
                if (load != null) {
                    pull(load, 1);
                }
            }
        }
    }

    private void expire(Arrival arrival) {
        if (arrivals.get(arrival.transfer) == arrival
                && arrival.state == State.STAGED
                && arrival.load == null) {
            outbox.count("p2p_staged_expired");
            finished.put(arrival.transfer, true);
            forget(arrival);
        }
    }

    /// Nobody will load it.
    private void drop(Arrival arrival) {
        if (arrival.window != null) {
            arrival.unwanted = true;
            arrival.window.withdraw(); // forgotten when it has ended
        } else if (arrival.state == State.STAGED) {
            forget(arrival);
        }
    }

    /// Nothing of it is in flight: its staging memory goes back.
    private void forget(Arrival arrival) {
        arrival.expiry.cancel();
        arrivals.remove(arrival.transfer, arrival);
        if (arrival.load != null) {
            loads.remove(arrival.load.id());
        }
        if (arrival.staged != null) {
            arrival.staged.close();
            arrival.staged = null;
        }
    }

    private void onLoad(P2pPlan.Load load) {
        if (revoked.containsKey(load.id())) {
            return;
        }
        if (load.prefiller().addresses().isEmpty()) {
            // What was pushed is counted from the end of the prompt too.
            fail(
                    load,
                    new Failure(ErrorCode.UNSUPPORTED, "only the end of a prompt can be fetched"));
            return;
        }
        var arrival = arrivals.get(load.transfer());
        if (arrival == null) {
            pull(load, 1);
        } else if (arrival.load != null || arrival.unwanted) {
            fail(load, new Failure(ErrorCode.ALREADY_ACTIVE, "the transfer is being loaded"));
        } else if (!load.prompt().equals(arrival.prompt)
                || !fewerOrEqual(CacheBlocks.counts(load.blocks()), arrival.counts)) {
            drop(arrival);
            end(load, new Failure(ErrorCode.INCOMPATIBLE, "what was pushed is of another prompt"));
        } else {
            arrival.load = load;
            loads.put(load.id(), arrival);
            if (arrival.state == State.STAGED) {
                arrival.expiry.cancel();
                copy(arrival);
            }
        }
    }

    private void copy(Arrival arrival) {
        arrival.state = State.COPYING;
        var load = Objects.requireNonNull(arrival.load);
        var from = Objects.requireNonNull(arrival.staged).placement();
        var to = blocks.tails(load.blocks(), CacheBlocks.counts(load.blocks()));
        copies.post(() -> {
            Outcome outcome;
            try {
                from.copyTailTo(to);
                outcome = new Outcome.Done(to.bytes());
            } catch (RuntimeException | Error e) { // whoever waits for the blocks must be told
                outcome = new Outcome.Failed(Failure.of(e));
            }
            var told = outcome;
            loop.post(() -> onInPlace(arrival, told));
        });
    }

    /// The blocks of a load are filled, or will not be.
    private void onInPlace(Arrival arrival, Outcome outcome) {
        var load = Objects.requireNonNull(arrival.load);
        arrival.window = null;
        boolean pulled = arrival.state == State.PULLING;
        forget(arrival);
        if (arrival.unwanted) {
            finished.put(load.transfer(), true);
            outbox.complete(load.id(), new Completion.Revoked());
            tellRelease(load.transfer(), load.prefiller());
            return;
        }
        switch (outcome) {
            case Outcome.Done(var bytes) -> {
                finished.put(load.transfer(), true);
                outbox.complete(load.id(), new Completion.Completed(bytes));
                if (pulled) {
                    received(bytes);
                }
                if (!pulled || arrival.refusal != null) {
                    // The prefiller may believe that the transfer broke off at its end.
                    tellRelease(load.transfer(), load.prefiller());
                }
            }
            case Outcome.Failed(var failure) -> {
                var cause = arrival.refusal != null ? arrival.refusal : failure;
                boolean passing = arrival.answered || arrival.refusal == null;
                if (pulled && passing && cause.code().retryable() && arrival.pulls < MOST_PULLS) {
                    LOG.debug("pull of {} is tried again: {}", load.transfer(), cause);
                    pull(load, arrival.pulls + 1);
                } else {
                    end(load, cause);
                }
            }
        }
    }

    private void end(P2pPlan.Load load, Failure failure) {
        finished.put(load.transfer(), true);
        fail(load, failure);
        tellRelease(load.transfer(), load.prefiller());
    }

    private void fail(P2pPlan.Load load, Failure failure) {
        outbox.count("p2p_loads_failed");
        outbox.complete(load.id(), new Completion.Failed(failure, List.of()));
    }

    private void pull(P2pPlan.Load load, int attempt) {
        var prefiller = P2pScheduler.address(load.prefiller(), rank);
        if (prefiller.isEmpty()) {
            fail(load, new Failure(ErrorCode.INVALID_REQUEST, "the prefiller has no such rank"));
            return;
        }
        int[] counts = CacheBlocks.counts(load.blocks());
        var arrival = new Arrival(load.transfer(), State.PULLING, counts, load.prompt());
        arrival.load = load;
        arrival.pulls = attempt;
        arrivals.put(arrival.transfer, arrival);
        loads.put(load.id(), arrival);
        var grant = Grant.draw();
        arrival.grant = grant;
        var limit = settings.receiveLimit().plus(settings.transferLimit());
        arrival.window =
                plane.receive(
                        grant,
                        blocks.tails(load.blocks(), counts),
                        Deadline.in(limit),
                        outcome -> loop.post(() -> onInPlace(arrival, outcome)));
        var message =
                new PeerMessage.Pull(
                        new PeerMessage.Transfer(
                                load.transfer(),
                                epoch,
                                load.prefiller().epoch(),
                                shape,
                                load.prompt(),
                                counts),
                        grant,
                        plane.address());
        channel.exchange(
                prefiller.get().endpoint(),
                message.encode(),
                CONNECT_LIMIT,
                limit,
                new Reply(answer -> loop.post(() -> onAnswer(arrival, answer))));
    }

    private void onAnswer(Arrival arrival, PeerMessage answer) {
        var window = arrival.window;
        if (arrivals.get(arrival.transfer) != arrival || window == null) {
            var load = arrival.load;
            if (load != null
                    && answer instanceof PeerMessage.Refused(var other, _)
                    && other != PeerMessage.ANY_EPOCH
                    && finished.containsKey(load.transfer())) {
                // It broke off when all was there, and holds the blocks for another pull.
                tellRelease(load.transfer(), load.prefiller());
            }
            return;
        }
        if (answer instanceof PeerMessage.Refused(var other, var failure)) {
            arrival.refusal = failure;
            arrival.answered = other != PeerMessage.ANY_EPOCH;
            window.withdraw();
        } else if (!(answer instanceof PeerMessage.Sent)) {
            arrival.refusal = new Failure(ErrorCode.PROTOCOL, "no answer to a pull");
            window.withdraw();
        }
    }

    private void onRevoked(TransferId id) {
        revoked.put(id, true);
        var arrival = loads.get(id);
        if (arrival == null) {
            outbox.complete(id, new Completion.Revoked());
            return;
        }
        var load = Objects.requireNonNull(arrival.load);
        switch (arrival.state) {
            case PULLING -> {
                arrival.unwanted = true;
                if (arrival.window != null) {
                    arrival.window.withdraw();
                }
            }
            case COPYING -> arrival.unwanted = true; // answered when the copy has ended
            case STAGING, STAGED -> {
                loads.remove(id);
                arrival.load = null;
                finished.put(load.transfer(), true);
                drop(arrival);
                outbox.complete(id, new Completion.Revoked());
                tellRelease(load.transfer(), load.prefiller());
            }
        }
    }

    private void tellRelease(String transfer, P2pPlan.Peer prefiller) {
        P2pScheduler.address(prefiller, rank)
                .ifPresent(address ->
                        channel.exchange(
                                address.endpoint(),
                                new PeerMessage.Release(transfer, epoch, prefiller.epoch())
                                        .encode(),
                                CONNECT_LIMIT,
                                CONNECT_LIMIT,
                                new Reply(answer -> {
                                    if (!(answer instanceof PeerMessage.Sent)) {
                                        LOG.debug(
                                                "release of {} was not heard: {}",
                                                transfer,
                                                answer);
                                    }
                                })));
    }

    private void received(long bytes) {
        outbox.record(Stats.ofCounters(Map.of("p2p_receives", 1L, "p2p_bytes_received", bytes)));
    }

    /// Gives all staging memory back, once the plane and both loops have ended.
    void free() {
        List.copyOf(arrivals.values()).forEach(this::forget);
    }
}
