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

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/// What one rank prefilled: pushes in their step, holds until the decoder has fetched them, pulls
/// that came before either.
///
/// A transfer goes through these states, in this order, of which it may leave some out:
///
/// ```
/// waiting pull   a decoder asks for what is not there yet; it hears nothing until the next state
/// push           offered to the decoder, or granted by its pull; ends with the step
/// hold           the engine keeps the blocks; sent when pulled
/// ended          why stands in `ended`; later pulls hear it
/// ```
///
/// Threading: confined to the loop; public methods post to it.
final class SendService {
    private static final Logger LOG = LoggerFactory.getLogger(SendService.class);
    private static final int MOST_WAITING = 4096;

    /// Waiting pulls of one host, so that it does not crowd the others out.
    private static final int MOST_WAITING_OF_HOST = MOST_WAITING / 4;

    private static final int REMEMBERED = 1 << 14;

    private final SerialLoop loop;
    private final SideChannel channel;
    private final DataPlane plane;
    private final CacheBlocks blocks;
    private final CacheShape shape;
    private final int rank;
    private final long epoch;
    private final P2pSettings settings;
    private final Outbox outbox;
    private final Map<String, Source> sources = new HashMap<>();
    private final Map<TransferId, Source> holds = new HashMap<>();
    private final Map<String, WaitingPull> waiting = new HashMap<>();
    private final Map<String, Failure> ended = new RecentMap<>(REMEMBERED);
    private final Map<String, Boolean> pushed = new RecentMap<>(REMEMBERED);
    private final Map<TransferId, Boolean> revoked = new RecentMap<>(REMEMBERED);

    /// Epochs of decoders that have granted something.
    private final Map<String, Long> epochs = new RecentMap<>(REMEMBERED);

    /// Until when nothing is pushed there, since the last push found no taker in time.
    private final Map<String, Deadline> stalled = new RecentMap<>(REMEMBERED);

    /// A pull whose transfer is not there yet.
    ///
    /// @param expiry refuses it
    private record WaitingPull(
            SideChannel.Asker asker, PeerMessage.Pull pull, SideChannel.Timer expiry) {}

    /// Blocks that can be sent, or are being sent: a push or a hold.
    private static final class Source {
        private final String transfer;
        private final PromptMark prompt;
        private final List<int[]> tails;
        private final @Nullable PushTask push;
        private final @Nullable TransferId hold;
        private DataPlane.@Nullable Sending sending;
        private @Nullable Grant grant;
        private SideChannel.@Nullable Asker asker;
        private boolean askerGone;
        private boolean revoked;
        private boolean released;

        Source(P2pPlan.Push plan, PushTask push) {
            transfer = plan.transfer();
            prompt = plan.prompt();
            tails = plan.blocks();
            this.push = push;
            hold = null;
        }

        Source(P2pPlan.Hold plan) {
            transfer = plan.transfer();
            prompt = plan.prompt();
            tails = plan.blocks();
            push = null;
            hold = plan.id();
        }

        P2pPlan.Push pushPlan() {
            return Objects.requireNonNull(push).plan();
        }
    }

    SendService(
            SerialLoop loop,
            SideChannel channel,
            DataPlane plane,
            CacheBlocks blocks,
            CacheShape shape,
            int rank,
            long epoch,
            P2pSettings settings,
            Outbox outbox) {
        this.loop = loop;
        this.channel = channel;
        this.plane = plane;
        this.blocks = blocks;
        this.shape = shape;
        this.rank = rank;
        this.epoch = epoch;
        this.settings = settings;
        this.outbox = outbox;
    }

    /// Begins to push; what may be sent is said to the task.
    PushTask push(P2pPlan.Push plan) {
        var task = new PushTask(plan);
        loop.post(() -> begin(new Source(plan, task), task));
        return task;
    }

    /// The step of a push is over, and nobody has asked for it.
    void giveUp(PushTask task) {
        task.giveUp();
        loop.post(() -> {
            var source = sources.get(task.plan().transfer());
            if (source != null && source.push == task && source.sending == null) {
                sources.remove(source.transfer);
            }
        });
    }

    /// A push was given up because it took too long: nothing more is pushed there for a while, so
    /// that one slow decoder does not slow every step.
    void tooSlow(PushTask task) {
        loop.post(() ->
                P2pScheduler.address(task.plan().decoder(), rank)
                        .ifPresent(address -> stalled(address.endpoint())));
    }

    private void stalled(String endpoint) {
        stalled.put(endpoint, Deadline.in(settings.pushLimit().multipliedBy(4)));
    }

    void hold(P2pPlan.Hold plan) {
        loop.post(() -> onHold(plan));
    }

    void withdraw(P2pPlan.Withdrawal plan) {
        loop.post(() -> end(plan.transfer(), new Failure(ErrorCode.CANCELLED, plan.reason())));
    }

    void revoke(TransferId id) {
        loop.post(() -> onRevoked(id));
    }

    private void begin(Source source, PushTask task) {
        if (ended.containsKey(source.transfer) || !task.mayBegin()) {
            task.giveUp();
            return;
        }
        var before = sources.putIfAbsent(source.transfer, source);
        if (before != null) {
            task.ended(failed(ErrorCode.ALREADY_ACTIVE, "two prompts of one transfer id"));
            return;
        }
        var early = takeWaiting(source.transfer);
        if (early != null) {
            serve(source, early);
            return;
        }
        var decoder = P2pScheduler.address(source.pushPlan().decoder(), rank);
        if (decoder.isEmpty()) {
            return; // the decoder may still ask before the step is over
        }
        var endpoint = decoder.get().endpoint();
        var slow = stalled.get(endpoint);
        if (slow != null && !slow.passed()) {
            endPush(source, failed(ErrorCode.BACKPRESSURE, endpoint + " was too slow lately"));
            return;
        }
        var offer =
                new PeerMessage.Offer(
                        new PeerMessage.Transfer(
                                source.transfer,
                                epoch,
                                epochs.getOrDefault(endpoint, PeerMessage.ANY_EPOCH),
                                shape,
                                source.prompt,
                                CacheBlocks.counts(source.tails)));
        channel.exchange(
                endpoint,
                offer.encode(),
                settings.pushLimit(),
                settings.pushLimit(),
                new Reply(answer -> loop.post(() -> onOffered(source, endpoint, answer))));
    }

    private void onOffered(Source source, String endpoint, PeerMessage answer) {
        if (sources.get(source.transfer) != source || source.sending != null) {
            return; // it has ended, or the decoder's pull came first
        }
        switch (answer) {
            case PeerMessage.Granted granted -> {
                epochs.put(endpoint, granted.epoch());
                if (!blocks.covers(source.tails, granted.counts())) {
                    endPush(source, failed(ErrorCode.PROTOCOL, "granted more than was offered"));
                } else {
                    begin(source, granted.grant(), granted.address(), granted.counts());
                }
            }
            case PeerMessage.Refused(var other, var failure) -> {
                if (failure.code() == ErrorCode.STALE_INCARNATION) {
                    epochs.remove(endpoint); // it was started anew: the next offer reaches it
                } else if (failure.code() == ErrorCode.TIMEOUT) {
                    stalled(endpoint); // the end of this wait may come before that of the step's
                }
                LOG.debug("{} (epoch {}) refuses an offer: {}", endpoint, other, failure);
                outbox.count("p2p_offers_refused");
                endPush(source, new Outcome.Failed(failure));
            }
            default -> endPush(source, failed(ErrorCode.PROTOCOL, "no answer to an offer"));
        }
    }

    private void onHold(P2pPlan.Hold plan) {
        if (revoked.containsKey(plan.id())) {
            return;
        }
        if (pushed.containsKey(plan.transfer()) || ended.containsKey(plan.transfer())) {
            outbox.complete(plan.id(), new Completion.Completed(0)); // the decoder needs it no more
            return;
        }
        var before = sources.get(plan.transfer());
        if (before != null && before.hold != null) {
            outbox.complete(
                    plan.id(),
                    new Completion.Failed(
                            new Failure(
                                    ErrorCode.ALREADY_ACTIVE,
                                    "two prompts of transfer id " + plan.transfer()),
                            List.of()));
            return;
        }
        var source = new Source(plan); // in the place of a push that was given up
        sources.put(plan.transfer(), source);
        holds.put(plan.id(), source);
        var early = takeWaiting(plan.transfer());
        if (early != null) {
            serve(source, early);
        }
    }

    private void onRevoked(TransferId id) {
        revoked.put(id, true);
        var source = holds.get(id);
        if (source == null) {
            outbox.complete(id, new Completion.Revoked());
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
    void onPull(SideChannel.Asker asker, PeerMessage.Pull pull) {
        var transfer = pull.transfer();
        var trouble = P2pWorker.misfit(transfer, epoch, shape);
        if (trouble.isPresent()) {
            refuse(asker, trouble.get());
            return;
        }
        var known = ended.get(transfer.id());
        if (known != null) {
            refuse(asker, known);
            return;
        }
        var source = sources.get(transfer.id());
        if (source != null && source.push != null && !source.push.mayBegin()) {
            source = null; // its step is over: the hold comes next
        }
        if (source != null && source.sending == null) {
            serve(source, new WaitingPull(asker, pull, () -> {}));
        } else if (source != null && pull.grant().equals(source.grant)) {
            source.asker = asker;
        } else {
            await(asker, pull);
        }
    }

    private void await(SideChannel.Asker asker, PeerMessage.Pull pull) {
        var before = takeWaiting(pull.transfer().id());
        if (before != null) {
            refuse(before.asker, new Failure(ErrorCode.ALREADY_ACTIVE, "pulled again"));
        }
        if (waiting.size() >= MOST_WAITING || crowds(asker.host())) {
            refuse(asker, new Failure(ErrorCode.BACKPRESSURE, "too many pulls wait"));
            return;
        }
        var limit = settings.receiveLimit().plus(settings.transferLimit());
        var expiry = channel.after(limit, () -> loop.post(() -> expire(pull)));
        waiting.put(pull.transfer().id(), new WaitingPull(asker, pull, expiry));
    }

    private boolean crowds(String host) {
        return waiting.size() >= MOST_WAITING_OF_HOST
                && waiting.values().stream().filter(each -> each.asker.host().equals(host)).count()
                        >= MOST_WAITING_OF_HOST;
    }

    /// The decoder has stopped to wait by now, by its own clock or because it is lost.
    private void expire(PeerMessage.Pull pull) {
        var late = waiting.get(pull.transfer().id());
        if (late != null && late.pull == pull) {
            waiting.remove(pull.transfer().id());
            refuse(late.asker, new Failure(ErrorCode.TIMEOUT, "no such prompt was computed"));
        }
    }

    private @Nullable WaitingPull takeWaiting(String transfer) {
        var pull = waiting.remove(transfer);
        if (pull != null) {
            pull.expiry.cancel();
        }
        return pull;
    }

    /// A decoder does not want a transfer any more. On the loop.
    void onRelease(SideChannel.Asker asker, PeerMessage.Release release) {
        var trouble = P2pWorker.misfit(release.id());
        if (trouble.isPresent()) {
            refuse(asker, trouble.get());
            return;
        }
        if (release.to() == PeerMessage.ANY_EPOCH || release.to() == epoch) {
            end(
                    release.id(),
                    new Failure(ErrorCode.CANCELLED, "the decoder has released the transfer"));
        }
        asker.answer(new PeerMessage.Sent(epoch, 0).encode());
    }

    /// A decoder's connection is over. On the loop.
    void onGone(SideChannel.Asker asker) {
        waiting.values()
                .removeIf(each -> {
                    if (each.asker == asker) {
                        each.expiry.cancel();
                    }
                    return each.asker == asker;
                });
        for (var source : List.copyOf(holds.values())) {
            if (source.asker == asker) {
                source.askerGone = true;
                if (source.sending == null) {
                    abandoned(source);
                }
            }
        }
    }

    /// The transfer is over, whatever state it is in.
    private void end(String transfer, Failure why) {
        ended.put(transfer, why);
        var early = takeWaiting(transfer);
        if (early != null) {
            refuse(early.asker, why);
        }
        var source = sources.get(transfer);
        if (source == null) {
            return;
        }
        if (source.push != null) {
            source.push.giveUp();
        } else if (source.sending != null) {
            source.released = true;
            source.sending.abort();
        } else {
            endHold(source, new Completion.Completed(0), why);
        }
    }

    private void refuse(SideChannel.Asker asker, Failure failure) {
        asker.answer(new PeerMessage.Refused(epoch, failure).encode());
    }

    private void serve(Source source, WaitingPull request) {
        var transfer = request.pull.transfer();
        if (!transfer.prompt().equals(source.prompt)
                || !blocks.covers(source.tails, transfer.counts())) {
            refuse(
                    request.asker,
                    new Failure(
                            ErrorCode.INCOMPATIBLE,
                            "the decoder has another prompt, or wants more blocks than there are"));
            if (source.push != null) {
                endPush(source, failed(ErrorCode.INCOMPATIBLE, "the decoder has another prompt"));
            }
            return;
        }
        source.asker = request.asker;
        source.askerGone = false;
        begin(source, request.pull.grant(), request.pull.address(), transfer.counts());
    }

    private void begin(Source source, Grant grant, String address, int[] counts) {
        var task = source.push;
        if (task != null && !task.mayBegin()) {
            endPush(source, failed(ErrorCode.CANCELLED, "the push was given up"));
            return;
        }
        source.grant = grant;
        try {
            var sending =
                    plane.send(
                            address,
                            grant,
                            blocks.tails(source.tails, counts),
                            Deadline.in(settings.transferLimit()),
                            outcome -> loop.post(() -> onSent(source, outcome)));
            source.sending = sending;
            if (task != null) {
                task.begun(sending);
            } else {
                sending.commit();
            }
        } catch (KvFerryException e) {
            onSent(source, new Outcome.Failed(e.toFailure()));
        }
    }

    private void onSent(Source source, Outcome outcome) {
        source.sending = null;
        if (source.push != null) {
            endPush(source, outcome);
            return;
        }
        switch (outcome) {
            case Outcome.Done(var bytes) -> {
                sent(bytes);
                reply(source, new PeerMessage.Sent(epoch, bytes));
                endHold(
                        source,
                        new Completion.Completed(bytes),
                        new Failure(ErrorCode.LEASE_EXPIRED, "the transfer was fetched before"));
            }
            case Outcome.Failed(var failure) -> {
                outbox.count("p2p_sends_failed");
                reply(source, new PeerMessage.Refused(epoch, failure));
                if (source.revoked) {
                    endHold(source, new Completion.Revoked(), expired());
                } else if (source.released) {
                    endHold(source, new Completion.Completed(0), failure);
                } else if (source.askerGone) {
                    abandoned(source);
                } else {
                    served(source); // the decoder may pull again, or releases it
                }
            }
        }
    }

    /// Sends to whoever asked meanwhile.
    private void served(Source source) {
        var next = takeWaiting(source.transfer);
        if (next != null) {
            serve(source, next);
        }
    }

    private void abandoned(Source source) {
        var lost = new Failure(ErrorCode.PEER_LOST, "the decoder has gone");
        endHold(source, new Completion.Failed(lost, List.of()), lost);
    }

    private void reply(Source source, PeerMessage message) {
        var asker = source.asker;
        if (asker != null) {
            asker.answer(message.encode());
        }
    }

    private void endPush(Source source, Outcome outcome) {
        sources.remove(source.transfer, source);
        switch (outcome) {
            case Outcome.Done(var bytes) -> {
                sent(bytes);
                outbox.count("p2p_pushes");
                pushed.put(source.transfer, true);
                var over = new Failure(ErrorCode.LEASE_EXPIRED, "the transfer was pushed before");
                ended.put(source.transfer, over);
                reply(source, new PeerMessage.Sent(epoch, bytes));
                var other = takeWaiting(source.transfer);
                if (other != null) {
                    refuse(other.asker, over);
                }
                var hold = sources.get(source.transfer); // the step had given the push up
                if (hold != null && hold.hold != null && hold.sending == null) {
                    endHold(hold, new Completion.Completed(0), over);
                }
            }
            case Outcome.Failed(var failure) -> {
                outbox.count("p2p_pushes_failed");
                LOG.debug("push of {} failed: {}", source.transfer, failure);
                // A decoder whose window this was pulls again, and gets it from the hold.
                reply(
                        source,
                        new PeerMessage.Refused(
                                epoch, new Failure(ErrorCode.BACKPRESSURE, "push: " + failure)));
            }
        }
        Objects.requireNonNull(source.push).ended(outcome);
    }

    private void endHold(Source source, Completion.Result result, Failure later) {
        var id = Objects.requireNonNull(source.hold);
        sources.remove(source.transfer, source);
        holds.remove(id);
        ended.put(source.transfer, later);
        var early = takeWaiting(source.transfer);
        if (early != null) {
            refuse(early.asker, later);
        }
        outbox.complete(id, result);
    }

    private void sent(long bytes) {
        outbox.record(Stats.ofCounters(Map.of("p2p_sends", 1L, "p2p_bytes_sent", bytes)));
    }

    private static Outcome failed(ErrorCode code, String text) {
        return new Outcome.Failed(new Failure(code, text));
    }
}
