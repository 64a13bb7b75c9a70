// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.Arrival.State;
import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.toolkit.bounded.LoopReport;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.BiConsumer;
import java.util.function.Consumer;

/// The transfers that one rank receives: loads, and pushes that arrived before their load.
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
/// If the push fails while STAGING, its load pulls instead. A pull that fails for a transient
/// reason is repeated once. Every load ends once, and its prefiller is told when it need not hold
/// the transfer.
///
/// Threading: confined to the loop; public methods post to it.
final class ReceiveService {
    private static final Logger LOG = LoggerFactory.getLogger(ReceiveService.class);
    private static final int MOST_PULLS = 2;

    private final RankParts own;
    private final StagedCopies copies;
    private final Prefillers prefillers;
    private final StagedBlocks staging;
    private final Map<String, Arrival> arrivals = new HashMap<>();
    private final Map<TransferId, Arrival> loads = new HashMap<>();
    private final Remembered<TransferId, Boolean> revoked = Remembered.transfers();

    /// Transfers that this rank no longer needs.
    private final Remembered<String, Boolean> finished = Remembered.byText();

    // Preallocated, for use when memory has run out.

    private final BiConsumer<P2pPlan.Load, Failure> failing = this::fail;
    private final BiConsumer<P2pPlan.Load, Failure> ending = this::end;
    private final Consumer<Arrival> expiring = this::expire;
    private final Consumer<Arrival> withdrawing = ReceiveService::withdrawUnused;

    /// @param copies closed by [#free]
    ReceiveService(RankParts own, StagedCopies copies, StagedBlocks staging) {
        this.own = own;
        this.copies = copies;
        this.staging = staging;
        this.prefillers = new Prefillers(own);
    }

    void load(P2pPlan.Load plan) {
        own.loop()
                .post(() -> {
                    try {
                        onLoad(plan);
                    } catch (RuntimeException | Error e) { // no memory, for one
                        LoopReport.ERROR.log(LOG, "a load fails that could not be begun", e);
                        notBegun(plan, Failure.of(e));
                    }
                });
    }

    private void notBegun(P2pPlan.Load load, Failure failure) {
        var arrival = loads.get(load.id());
        if (arrival == null || arrival.load != load) {
            loads.remove(load.id());
        } else if (arrival.window != null || arrival.state == State.COPYING) {
            return; // it ends with that
        } else {
            forget(arrival);
        }
        own.untilDone(failing, load, failure);
    }

    void release(P2pPlan.Release plan) {
        own.postUntilDone(this::onReleased, plan);
    }

    private void onReleased(P2pPlan.Release plan) {
        var arrival = arrivals.get(plan.transfer());
        if (arrival != null && arrival.load == null) {
            drop(arrival);
        }
        finished.put(plan.transfer(), true);
        prefillers.release(plan.transfer(), plan.prefiller());
    }

    void revoke(TransferId id) {
        own.postUntilDone(this::onRevoked, id);
    }

    /// A prefiller has something to push. On the loop.
    void onOffer(SideChannel.Asker asker, PeerMessage.Offer offer) {
        var transfer = offer.transfer();
        var trouble = P2pWorker.misfit(transfer, own.epoch(), own.shape());
        if (trouble.isPresent()) {
            refuse(asker, trouble.get());
            return;
        }
        var arrival = arrivals.get(transfer.id());
        if (arrival != null) {
            answerKnown(asker, arrival, transfer);
        } else if (finished.contains(transfer.id())) {
            refuse(asker, new Failure(ErrorCode.CANCELLED, "no longer needed here"));
        } else {
            stage(asker, transfer);
        }
    }

    private void answerKnown(
            SideChannel.Asker asker, Arrival arrival, PeerMessage.Transfer transfer) {
        var grant = arrival.grant;
        if (arrival.state != State.PULLING || grant == null || arrival.pulls > 1) {
            refuse(asker, new Failure(ErrorCode.ALREADY_ACTIVE, "offered before"));
        } else if (!transfer.prompt().equals(arrival.prompt())
                || !Arrival.fewerOrEqual(arrival.counts(), transfer.counts())) {
            refuse(asker, new Failure(ErrorCode.INCOMPATIBLE, "the decoder has another prompt"));
        } else {
            asker.answer(granted(grant, arrival.counts()));
        }
    }

    /// A push that was granted will not come: its load need not wait for it. On the loop.
    void onUnused(SideChannel.Asker asker, PeerMessage.Unused unused) {
        var arrival = arrivals.get(unused.id());
        if (arrival != null
                && arrival.state == State.STAGING
                && unused.grant().equals(arrival.grant)) {
            withdrawUnused(arrival);
        }
        asker.answer(new PeerMessage.Sent(own.epoch(), 0).encode());
    }

    private byte[] granted(Grant grant, int[] counts) {
        long credit = 0;
        for (long bytes : own.blocks().partBytes(counts)) {
            credit += bytes;
        }
        return new PeerMessage.Granted(own.epoch(), grant, own.plane().address(), counts, credit)
                .encode();
    }

    private void refuse(SideChannel.Asker asker, Failure failure) {
        own.count("p2p_offers_refused");
        own.refuse(asker, failure);
    }

    private void stage(SideChannel.Asker asker, PeerMessage.Transfer transfer) {
        var arrival =
                new Arrival(
                        transfer.id(), State.STAGING, transfer.counts().clone(), transfer.prompt());
        try {
            arrival.staged = staging.take(transfer.counts());
            var grant = Grant.draw();
            arrival.grant = grant;
            arrivals.put(arrival.transfer(), arrival);
            Consumer<Outcome> staged = outcome -> onStaged(arrival, outcome);
            arrival.window =
                    own.plane()
                            .receive(
                                    grant,
                                    arrival.staged.placement(),
                                    Deadline.in(own.settings().transferLimit()),
                                    outcome -> own.loop().post(staged, outcome));
            // A sender connects soon, or has given up the step by then. After this time the load
            // pulls.
            arrival.expiry =
                    own.channel()
                            .after(
                                    own.settings().pushLimit().multipliedBy(2),
                                    () -> own.loop().post(withdrawing, arrival));
            asker.answer(granted(grant, arrival.counts()));
        } catch (RuntimeException | Error e) { // no room or no memory; the grant was never sent
            if (arrival.window == null) {
                forget(arrival);
            } else {
                arrival.window.withdraw(); // forgotten when it has ended
            }
            refuse(asker, Failure.of(e));
        }
    }

    private static void withdrawUnused(Arrival arrival) {
        if (arrival.window != null) {
            arrival.window.withdrawUnused();
        }
    }

    /// Staging memory is released even if handling the outcome fails, for example because memory
    /// has run out.
    private void onStaged(Arrival arrival, Outcome outcome) {
        try {
            goOn(arrival, outcome);
        } catch (RuntimeException | Error e) {
            LoopReport.ERROR.log(LOG, "what was pushed is dropped", e);
            if (arrivals.get(arrival.transfer()) == arrival && arrival.state != State.COPYING) {
                var load = arrival.load;
                forget(arrival);
                if (load != null) {
                    own.untilDone(failing, load, Failure.of(e));
                }
            }
        }
    }

    private void goOn(Arrival arrival, Outcome outcome) {
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
                            own.channel()
                                    .after(
                                            own.settings().stagedLimit(),
                                            () -> own.loop().post(expiring, arrival));
                }
            }
            case Outcome.Failed(var failure) -> {
                LOG.debug("push of {} failed: {}", arrival.transfer(), failure);
                var load = arrival.load;
                forget(arrival);
                if (load != null) {
                    pull(load, 1);
                }
            }
        }
    }

    private void expire(Arrival arrival) {
        if (arrivals.get(arrival.transfer()) == arrival
                && arrival.state == State.STAGED
                && arrival.load == null) {
            forget(arrival); // first, as it needs no memory
            finished.put(arrival.transfer(), true);
            own.count("p2p_staged_expired");
        }
    }

    /// Discards an arrival that has no load and will not get one.
    private void drop(Arrival arrival) {
        if (arrival.window != null) {
            arrival.unwanted = true;
            arrival.window.withdraw(); // forgotten when it has ended
        } else if (arrival.state == State.STAGED) {
            forget(arrival);
        }
    }

    /// Removes an arrival with nothing in flight and releases its staging memory. Allocates
    /// nothing.
    private void forget(Arrival arrival) {
        arrival.expiry.cancel();
        arrivals.remove(arrival.transfer(), arrival);
        if (arrival.load != null) {
            loads.remove(arrival.load.id(), arrival);
        }
        if (arrival.staged != null) {
            arrival.staged.close();
            arrival.staged = null;
        }
    }

    private void onLoad(P2pPlan.Load load) {
        if (revoked.contains(load.id())) {
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
        if (loads.size() >= own.settings().maxLoads()) {
            if (arrival != null && arrival.load == null) {
                drop(arrival);
            }
            end(
                    load,
                    new Failure(
                            ErrorCode.BACKPRESSURE,
                            loads.size() + " loads are open already (option max_loads)"));
            return;
        }
        if (arrival == null) {
            pull(load, 1);
        } else if (arrival.load != null || arrival.unwanted) {
            fail(load, new Failure(ErrorCode.ALREADY_ACTIVE, "the transfer is being loaded"));
        } else if (!load.prompt().equals(arrival.prompt())
                || !arrival.covers(CacheBlocks.counts(load.blocks()))) {
            drop(arrival);
            end(load, new Failure(ErrorCode.INCOMPATIBLE, "what was pushed is of another prompt"));
        } else {
            loads.put(load.id(), arrival); // first: if this throws, the arrival stays unclaimed
            arrival.load = load;
            if (arrival.state == State.STAGED) {
                arrival.expiry.cancel();
                copy(arrival);
            }
        }
    }

    private void copy(Arrival arrival) {
        var load = arrival.wanted();
        var from = Objects.requireNonNull(arrival.staged).placement();
        var to = own.blocks().tails(load.blocks(), CacheBlocks.counts(load.blocks()));
        Consumer<Outcome> copied = own.onLoop(outcome -> onInPlace(arrival, outcome));
        arrival.state = State.COPYING; // needs no memory from here on
        copies.copy(from, to, copied);
    }

    /// The blocks of a load are filled, or will not be. May be called again where it threw.
    private void onInPlace(Arrival arrival, Outcome outcome) {
        var load = arrival.wanted();
        arrival.window = null;
        boolean pulled = arrival.state == State.PULLING;
        forget(arrival);
        if (arrival.unwanted) {
            finished.put(load.transfer(), true);
            own.outbox().complete(load.id(), new Completion.Revoked());
            prefillers.release(load.transfer(), load.prefiller());
            return;
        }
        switch (outcome) {
            case Outcome.Done(var bytes) -> {
                finished.put(load.transfer(), true);
                own.outbox().complete(load.id(), new Completion.Completed(bytes));
                if (!pulled || arrival.refusal != null) {
                    // The prefiller may have seen the transfer break off at its end.
                    prefillers.release(load.transfer(), load.prefiller());
                }
                if (pulled) {
                    received(bytes);
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

    /// May be called again where it threw.
    private void end(P2pPlan.Load load, Failure failure) {
        finished.put(load.transfer(), true);
        prefillers.release(load.transfer(), load.prefiller());
        fail(load, failure);
    }

    private void fail(P2pPlan.Load load, Failure failure) {
        own.count("p2p_loads_failed"); // before it, so that one report has both
        own.outbox().complete(load.id(), new Completion.Failed(failure, List.of()));
    }

    /// Throws nothing: a pull that cannot be begun ends its load.
    private void pull(P2pPlan.Load load, int attempt) {
        Arrival begun = null;
        try {
            int[] counts = CacheBlocks.counts(load.blocks());
            var arrival = new Arrival(load.transfer(), State.PULLING, counts, load.prompt());
            begun = arrival;
            arrival.load = load;
            arrival.pulls = attempt;
            arrivals.put(arrival.transfer(), arrival);
            loads.put(load.id(), arrival);
            var grant = Grant.draw();
            arrival.grant = grant;
            arrival.window =
                    own.plane()
                            .receive(
                                    grant,
                                    own.blocks().tails(load.blocks(), counts),
                                    Deadline.in(prefillers.pullLimit()),
                                    own.onLoop(outcome -> onInPlace(arrival, outcome)));
        } catch (RuntimeException | Error e) { // such as no memory; the grant was never sent
            if (begun != null) {
                forget(begun);
            }
            own.untilDone(ending, load, Failure.of(e));
            return;
        }
        ask(begun);
    }

    /// Asks for what a window is open for.
    private void ask(Arrival arrival) {
        try {
            if (!prefillers.pull(arrival, answer -> onAnswer(arrival, answer))) {
                arrival.refusal =
                        new Failure(ErrorCode.INVALID_REQUEST, "the prefiller has no such rank");
            }
        } catch (RuntimeException | Error e) { // no memory, for one
            arrival.refusal = Failure.of(e);
        }
        if (arrival.refusal != null && arrival.window != null) {
            arrival.window.withdraw();
        }
    }

    private void onAnswer(Arrival arrival, PeerMessage answer) {
        var window = arrival.window;
        if (arrivals.get(arrival.transfer()) != arrival || window == null) {
            var load = arrival.load;
            if (load != null
                    && answer instanceof PeerMessage.Refused(var other, _)
                    && other != PeerMessage.ANY_EPOCH
                    && finished.contains(load.transfer())) {
                // It broke off when all was there, and holds the blocks for another pull.
                prefillers.release(load.transfer(), load.prefiller());
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
            own.outbox().complete(id, new Completion.Revoked());
            return;
        }
        var load = arrival.wanted();
        switch (arrival.state) {
            case PULLING -> {
                arrival.unwanted = true;
                if (arrival.window != null) {
                    arrival.window.withdraw();
                }
            }
            case COPYING -> arrival.unwanted = true; // answered when the copy has ended
            case STAGING, STAGED -> {
                finished.put(load.transfer(), true);
                own.outbox().complete(id, new Completion.Revoked());
                prefillers.release(load.transfer(), load.prefiller());
                loads.remove(id); // last, as it needs no memory
                arrival.load = null;
                drop(arrival);
            }
        }
    }

    private void received(long bytes) {
        own.count("p2p_receives", "p2p_bytes_received", bytes);
    }

    /// Arrivals and loads that have not ended. On the loop.
    int open() {
        return arrivals.size() + loads.size();
    }

    /// Gives all staging memory back, once the plane and both loops are closed and no copy runs.
    ///
    /// @throws KvFerryException [ErrorCode#TIMEOUT] when one still does: all memory must stay in
    ///   place
    void free() {
        copies.close();
        List.copyOf(arrivals.values()).forEach(this::forget);
    }
}
