// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.toolkit.bounded.LoopReport;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiConsumer;
import java.util.function.Consumer;

/// The transfers that one rank sends: pushes during their step, holds until the decoder has fetched
/// them, and pulls that arrive before either.
///
/// A transfer goes through these states in this order; some may be skipped:
///
/// ```
/// waiting pull   requested by a decoder before it exists; answered in the next state
/// push           offered to the decoder, or granted by its pull; ends with the step
/// hold           the engine keeps the blocks; sent when pulled
/// ended          `ended` has the reason, with which later pulls are answered
/// ```
///
/// Threading: confined to the loop; public methods post to it.
final class SendService implements StepPushes.Pushes {
    private static final Logger LOG = LoggerFactory.getLogger(SendService.class);
    private static final Failure RELEASED =
            new Failure(ErrorCode.CANCELLED, "the decoder has released the transfer");

    private final RankParts own;
    private final Map<String, Source> sources = new HashMap<>();
    private final Map<TransferId, Source> holds = new HashMap<>();
    private final WaitingPulls waiting;
    private final Decoders decoders;
    private final Remembered<String, Failure> ended = Remembered.failures();
    private final Remembered<String, Boolean> pushed = Remembered.byText();
    private final Remembered<TransferId, Boolean> revoked = Remembered.transfers();

    // Made ahead, for where there is no memory.

    private final BiConsumer<String, Failure> ending = this::end;
    private final Consumer<SideChannel.Asker> gone;

    SendService(RankParts own) {
        this.own = own;
        this.waiting =
                new WaitingPulls(
                        own, own.settings().receiveLimit().plus(own.settings().transferLimit()));
        this.decoders = new Decoders(own);
        this.gone = own.onLoop(this::onGone);
    }

    /// Begins to push; what may be sent is said to the task.
    @Override
    public PushTask push(P2pPlan.Push plan) {
        var task = new PushTask(plan);
        var source = new Source(plan, task);
        own.loop()
                .post(() -> {
                    try {
                        begin(source, task);
                    } catch (RuntimeException | Error e) { // no memory, for one
                        notBegun(source, e);
                    }
                });
        return task;
    }

    private void notBegun(Source source, Throwable why) {
        LoopReport.ERROR.log(LOG, "a push fails that could not be begun", why);
        if (source.sending != null) {
            return; // it ends with that
        }
        var outcome = Outcome.Failed.of(why);
        if (sources.get(source.transfer()) == source) {
            endPush(source, outcome);
        } else {
            source.push().ended(outcome);
        }
    }

    /// Gives a push up that was not requested before the end of its step.
    @Override
    public void giveUp(PushTask task) {
        task.giveUp();
        own.loop()
                .post(() -> {
                    var source = sources.get(task.plan().transfer());
                    if (source != null
                            && source.isPush()
                            && source.push() == task
                            && source.sending == null) {
                        sources.remove(source.transfer());
                    }
                });
    }

    /// A push was given up because it took too long.
    @Override
    public void tooSlow(PushTask task) {
        own.loop()
                .post(() ->
                        P2pScheduler.address(task.plan().decoder(), own.rank())
                                .ifPresent(address -> decoders.tooSlow(address.endpoint())));
    }

    void hold(P2pPlan.Hold plan) {
        own.postUntilDone(this::onHold, plan);
    }

    void withdraw(P2pPlan.Withdrawal plan) {
        own.postUntilDone(this::onWithdrawn, plan);
    }

    void revoke(TransferId id) {
        own.postUntilDone(this::onRevoked, id);
    }

    /// A decoder's connection is over.
    void gone(SideChannel.Asker asker) {
        gone.accept(asker);
    }

    private void begin(Source source, PushTask task) {
        if (ended.contains(source.transfer()) || !task.mayBegin()) {
            task.giveUp();
            return;
        }
        var before = sources.putIfAbsent(source.transfer(), source);
        if (before != null) {
            task.ended(failed(ErrorCode.ALREADY_ACTIVE, "two prompts of one transfer id"));
            return;
        }
        var early = waiting.take(source.transfer());
        if (early != null) {
            serve(source, early);
            return;
        }
        var decoder = P2pScheduler.address(task.plan().decoder(), own.rank());
        if (decoder.isEmpty()) {
            if (!task.plan().decoder().addresses().isEmpty()) {
                endPush(source, failed(ErrorCode.INVALID_REQUEST, "the decoder has no such rank"));
            }
            return; // a decoder that is not known may still ask before the step is over
        }
        var endpoint = decoder.get().endpoint();
        if (decoders.isStalled(endpoint)) {
            endPush(source, failed(ErrorCode.BACKPRESSURE, endpoint + " was too slow lately"));
            return;
        }
        decoders.offer(source, endpoint, answer -> onOffered(source, endpoint, answer));
    }

    private void onOffered(Source source, String endpoint, PeerMessage answer) {
        try {
            goOn(source, endpoint, answer);
        } catch (RuntimeException | Error e) { // no memory, for one
            notBegun(source, e);
        }
    }

    private void goOn(Source source, String endpoint, PeerMessage answer) {
        if (sources.get(source.transfer()) != source || source.sending != null) {
            // It has ended, or the decoder's pull came first.
            if (answer instanceof PeerMessage.Granted late && !late.grant().equals(source.grant)) {
                decoders.leaveUnused(source.transfer(), endpoint, late.grant());
            }
            return;
        }
        switch (answer) {
            case PeerMessage.Granted granted -> {
                decoders.granted(endpoint, granted.epoch());
                source.granter = endpoint;
                source.grant = granted.grant();
                if (!own.blocks().covers(source.tails(), granted.counts())) {
                    endPush(source, failed(ErrorCode.PROTOCOL, "granted more than was offered"));
                } else {
                    begin(source, granted.grant(), granted.address(), granted.counts());
                }
            }
            case PeerMessage.Refused refusal -> {
                decoders.refused(endpoint, refusal);
                endPush(source, new Outcome.Failed(refusal.failure()));
            }
            default -> endPush(source, failed(ErrorCode.PROTOCOL, "no answer to an offer"));
        }
    }

    private void onHold(P2pPlan.Hold plan) {
        if (revoked.contains(plan.id())) {
            return;
        }
        if (pushed.contains(plan.transfer()) || ended.contains(plan.transfer())) {
            own.outbox()
                    .complete(
                            plan.id(), new Completion.Completed(0)); // the decoder needs it no more
            return;
        }
        var begun = holds.get(plan.id()); // this may be another attempt
        var before = sources.get(plan.transfer());
        if (before != null && before != begun && (!before.isPush() || before.push().mayBegin())) {
            own.outbox()
                    .complete(
                            plan.id(),
                            new Completion.Failed(
                                    new Failure(
                                            ErrorCode.ALREADY_ACTIVE,
                                            "two prompts of transfer id " + plan.transfer()),
                                    List.of()));
            return;
        }
        var source = begun != null ? begun : new Source(plan);
        holds.put(plan.id(), source); // first: what can be sent must be known to a revocation
        sources.put(plan.transfer(), source); // in the place of a push that was given up
        serveNext(source);
    }

    private void serveNext(Source source) {
        var next = waiting.take(source.transfer());
        if (next != null) {
            serve(source, next);
        }
    }

    private void onWithdrawn(P2pPlan.Withdrawal plan) {
        end(plan.transfer(), new Failure(ErrorCode.CANCELLED, plan.reason()));
    }

    private void onRevoked(TransferId id) {
        revoked.put(id, true);
        var source = holds.get(id);
        if (source == null) {
            own.outbox().complete(id, new Completion.Revoked());
            return;
        }
        source.revoked = true;
        if (source.sending != null) {
            source.sending.abort(); // answered when it has ended
        } else {
            endHold(source, new Completion.Revoked(), expired());
        }
    }

    private static Failure expired() {
        return new Failure(ErrorCode.LEASE_EXPIRED, "the prefiller's hold has ended");
    }

    /// A decoder wants blocks. On the loop.
    ///
    /// @param bytes of the message
    void onPull(SideChannel.Asker asker, PeerMessage.Pull pull, int bytes) {
        var transfer = pull.transfer();
        var trouble = P2pWorker.misfit(transfer, own.epoch(), own.shape());
        if (trouble.isPresent()) {
            own.refuse(asker, trouble.get());
            return;
        }
        var known = ended.get(transfer.id());
        if (known != null) {
            own.refuse(asker, known);
            return;
        }
        var source = sources.get(transfer.id());
        if (source != null && source.isPush() && !source.push().mayBegin()) {
            source = null; // its step is over: the hold comes next
        }
        if (source != null && source.sending == null) {
            serve(source, new WaitingPulls.Asked(asker, pull, bytes));
        } else if (source != null && pull.grant().equals(source.grant)) {
            source.askedBy(asker);
        } else {
            waiting.await(new WaitingPulls.Asked(asker, pull, bytes));
        }
    }

    /// A decoder does not want a transfer any more. On the loop.
    void onRelease(SideChannel.Asker asker, PeerMessage.Release release) {
        var trouble = P2pWorker.misfit(release.id());
        if (trouble.isPresent()) {
            own.refuse(asker, trouble.get());
            return;
        }
        if (release.to() == PeerMessage.ANY_EPOCH || release.to() == own.epoch()) {
            own.untilDone(ending, release.id(), RELEASED);
        }
        asker.answer(new PeerMessage.Sent(own.epoch(), 0).encode());
    }

    /// A decoder's connection is over. On the loop.
    void onGone(SideChannel.Asker asker) {
        waiting.gone(asker);
        for (var source : List.copyOf(holds.values())) {
            if (source.asker == asker) {
                source.askerGone = true;
                if (source.sending == null) {
                    abandoned(source);
                }
            }
        }
    }

    /// The transfer is over, whatever state it is in. May be called again where it threw.
    private void end(String transfer, Failure why) {
        ended.put(transfer, why);
        waiting.refuse(transfer, why);
        var source = sources.get(transfer);
        if (source == null) {
            return;
        }
        if (source.isPush()) {
            source.push().giveUp();
        } else if (source.sending != null) {
            source.released = true;
            source.sending.abort();
        } else {
            endHold(source, new Completion.Completed(0), why);
        }
    }

    private void serve(Source source, WaitingPulls.Asked request) {
        var transfer = request.pull().transfer();
        if (!transfer.prompt().equals(source.prompt())
                || !own.blocks().covers(source.tails(), transfer.counts())) {
            own.refuse(
                    request.asker(),
                    new Failure(
                            ErrorCode.INCOMPATIBLE,
                            "the decoder has another prompt, or wants more blocks than there are"));
            if (source.isPush()) {
                endPush(source, failed(ErrorCode.INCOMPATIBLE, "the decoder has another prompt"));
            }
            return;
        }
        source.askedBy(request.asker());
        source.askerGone = false;
        begin(source, request.pull().grant(), request.pull().address(), transfer.counts());
    }

    private void begin(Source source, Grant grant, String address, int[] counts) {
        if (source.isPush() && !source.push().mayBegin()) {
            endPush(source, failed(ErrorCode.CANCELLED, "the push was given up"));
            return;
        }
        source.grant = grant;
        DataPlane.Sending sending;
        try {
            sending =
                    own.plane()
                            .send(
                                    address,
                                    grant,
                                    own.blocks().tails(source.tails(), counts),
                                    Deadline.in(own.settings().transferLimit()),
                                    own.onLoop(outcome -> onSent(source, outcome)));
        } catch (RuntimeException | Error e) { // no memory, for one
            onSent(source, Outcome.Failed.of(e));
            return;
        }
        source.sending = sending;
        try {
            if (source.isPush()) {
                source.push().begun(sending);
            } else {
                sending.commit();
            }
        } catch (RuntimeException | Error e) { // as above; reported once no block is read any more
            sending.abort();
            LoopReport.WARN.log(LOG, "sending {} is given up", source.transfer(), e);
        }
    }

    private void onSent(Source source, Outcome outcome) {
        source.sending = null;
        if (source.isPush()) {
            endPush(source, outcome);
            return;
        }
        switch (outcome) {
            case Outcome.Done(var bytes) -> {
                endHold(
                        source,
                        new Completion.Completed(bytes),
                        new Failure(ErrorCode.LEASE_EXPIRED, "the transfer was fetched before"));
                reply(source, new PeerMessage.Sent(own.epoch(), bytes));
                sent(bytes);
            }
            case Outcome.Failed(var failure) -> {
                reply(source, new PeerMessage.Refused(own.epoch(), failure));
                own.count("p2p_sends_failed");
                if (source.revoked) {
                    endHold(source, new Completion.Revoked(), expired());
                } else if (source.released) {
                    endHold(source, new Completion.Completed(0), failure);
                } else if (source.askerGone) {
                    abandoned(source);
                } else {
                    // The decoder may pull again, or has done so, or releases it.
                    serveNext(source);
                }
            }
        }
    }

    private void abandoned(Source source) {
        var lost = new Failure(ErrorCode.PEER_LOST, "the decoder has gone");
        endHold(source, new Completion.Failed(lost, List.of()), lost);
    }

    /// Answers each pull once. Later steps may run out of memory and be repeated.
    private void reply(Source source, PeerMessage message) {
        var asker = source.asker;
        if (asker != null && !source.answered) {
            asker.answer(message.encode());
            source.answered = true;
        }
    }

    /// Notifies the step even if there is no memory for the rest.
    private void endPush(Source source, Outcome outcome) {
        sources.remove(source.transfer(), source);
        try {
            tellOfPush(source, outcome);
        } finally {
            source.push().ended(outcome);
        }
    }

    private void tellOfPush(Source source, Outcome outcome) {
        switch (outcome) {
            case Outcome.Done(var bytes) -> {
                pushed.put(source.transfer(), true);
                var over = new Failure(ErrorCode.LEASE_EXPIRED, "the transfer was pushed before");
                ended.put(source.transfer(), over);
                var hold = sources.get(source.transfer()); // the step had given the push up
                if (hold != null && !hold.isPush() && hold.sending == null) {
                    endHold(hold, new Completion.Completed(0), over);
                }
                waiting.refuse(source.transfer(), over);
                reply(source, new PeerMessage.Sent(own.epoch(), bytes));
                sent(bytes);
                own.count("p2p_pushes");
            }
            case Outcome.Failed(var failure) -> {
                LOG.debug("push of {} failed: {}", source.transfer(), failure);
                if (source.granter != null && source.grant != null) {
                    decoders.leaveUnused(source.transfer(), source.granter, source.grant);
                }
                // A decoder whose window this was pulls again, and gets it from the hold.
                reply(
                        source,
                        new PeerMessage.Refused(
                                own.epoch(),
                                new Failure(ErrorCode.BACKPRESSURE, "push: " + failure)));
                own.count("p2p_pushes_failed");
            }
        }
    }

    /// May be called again where it threw.
    private void endHold(Source source, Completion.Result result, Failure later) {
        var id = source.hold();
        ended.put(source.transfer(), later);
        waiting.refuse(source.transfer(), later);
        own.outbox().complete(id, result);
        sources.remove(source.transfer(), source);
        holds.remove(id);
    }

    private void sent(long bytes) {
        own.count("p2p_sends", "p2p_bytes_sent", bytes);
    }

    /// Transfers and holds that have not ended. On the loop.
    int open() {
        return sources.size() + holds.size();
    }

    /// Bytes of the pulls that wait. On the loop.
    long waitingBytes() {
        return waiting.bytes();
    }

    private static Outcome failed(ErrorCode code, String text) {
        return new Outcome.Failed(new Failure(code, text));
    }
}
