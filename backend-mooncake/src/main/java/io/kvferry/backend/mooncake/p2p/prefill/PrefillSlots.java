// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.prefill;

import io.kvferry.backend.mooncake.p2p.common.MooncakePlan;
import io.kvferry.backend.mooncake.p2p.common.MooncakeSettings;
import io.kvferry.backend.mooncake.p2p.prefill.PrefillSlot.Ask;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.toolkit.bounded.HeapPause;
import io.kvferry.toolkit.bounded.Outbox;
import io.kvferry.toolkit.bounded.RecentMap;
import io.kvferry.toolkit.bounded.SerialLoop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.BiConsumer;

/// The transfers of one rank's prefills: pairs those that are done with the decoder workers that
/// ask for them, and has [PushQueue] write.
///
/// Nobody waits in a thread: a request that comes before its prefill is noted, answered when the
/// prefill is ready, or when its time is up. Blocks are read only while the scheduler half holds
/// them: a revoked hold is answered when nothing reads them any more, and later requests for it are
/// refused at once.
///
/// Threading: the prefill loop.
final class PrefillSlots {
    /// Waiting requests of one host, so that it does not crowd the others out.
    static final int MAX_WAITING_OF_HOST = 1 << 14;

    private static final int MAX_WAITING = 1 << 16;
    private static final int MAX_ENDED = 1 << 14;

    /// Of longer transfer ids, which clients may choose, nothing is kept when they have ended.
    private static final int LONGEST_KEPT = 1024;

    /// In vLLM's words.
    private static final Failure LATE =
            new Failure(ErrorCode.TIMEOUT, "Timeout waiting for P side ready.");

    private final Carrier carrier;
    private final Outbox outbox;
    private final PushQueue pushes;
    private final Map<String, PrefillSlot> slots = new HashMap<>();
    private final Map<TransferId, PrefillSlot> holds = new HashMap<>();
    private final Map<String, String> ended = new RecentMap<>(MAX_ENDED);

    /// Slots whose decoders have gone, or were told that they have waited too long, before anything
    /// was heard of the prefill.
    private final Map<String, PrefillSlot> abandoned = new RecentMap<>(MAX_ENDED);

    private final Map<String, Integer> waitingOfHost = new HashMap<>();
    private int waiting;

    /// @param loop runs what is called back
    PrefillSlots(Carrier carrier, SerialLoop loop, MooncakeSettings settings, Outbox outbox) {
        this.carrier = carrier;
        this.outbox = outbox;
        this.pushes = new PushQueue(carrier, loop, settings, outbox, this::pushed);
    }

    /// A prefill for this transfer has begun.
    void expect(String transferId) {
        var slot = slot(transferId);
        slot.expect();
        slot.waiting().forEach(ask -> carrier.prepare(ask.exchange().message()));
    }

    /// The prefill is done and its blocks are held.
    void ready(MooncakePlan.Send send) {
        var slot = slot(send.transferId());
        if (slot.isReady()) { // a transfer id used twice: the first one keeps it
            outbox.complete(
                    send.hold(),
                    failed(ErrorCode.INVALID_REQUEST, "transfer id in use: " + send.transferId()));
            return;
        }
        ended.remove(send.transferId());
        var asks = List.copyOf(slot.waiting());
        var hold = Optional.of(send.hold());
        holds.put(send.hold(), slot); // before it serves: a revocation must find it
        // Nothing from here on throws for lack of memory before all are passed on.
        slot.ready(hold, send.blocks());
        slot.waiting().clear();
        // All count before the first one ends, or the hold would end under the others.
        for (int i = 0; i < asks.size(); i++) {
            slot.begin(asks.get(i));
        }
        for (int i = 0; i < asks.size(); i++) {
            pushes.add(slot, asks.get(i));
        }
        asks.forEach(this::left);
        settle(slot); // whoever wanted it may have gone
    }

    /// There will be no KV for this transfer.
    void withdraw(MooncakePlan.Withdrawal withdrawal) {
        ended(withdrawal.transferId(), withdrawal.reason());
        var slot = slots.get(withdrawal.transferId());
        if (slot != null && !slot.isReady()) {
            slots.remove(slot.transferId());
            refuseWaiting(slot, withdrawal.reason());
        }
    }

    /// The hold has ended: stop, then say so.
    void revoke(TransferId hold) {
        var slot = holds.get(hold);
        if (slot == null) {
            outbox.complete(hold, new Completion.Revoked());
            return;
        }
        slot.revoke();
        try {
            outbox.count("mooncake_num_kv_expired_reqs");
            pushes.withdraw(slot, expired(slot));
            List.copyOf(slot.inFlight()).forEach(Runnable::run);
        } finally { // nobody revokes twice
            settle(slot);
        }
    }

    /// Whether a prefill has begun and is not done. For other transfers no address is looked up: a
    /// stranger could name any.
    boolean isComputed(String transferId) {
        var slot = slots.get(transferId);
        return slot != null && slot.expected() && !slot.isReady();
    }

    /// Takes a request up.
    ///
    /// @return why not, if it is refused
    Optional<String> ask(Ask ask) {
        var transferId = ask.wanted().transferId();
        var slot = slots.get(transferId);
        if (slot == null && ended.containsKey(transferId)) {
            return Optional.of(String.valueOf(ended.get(transferId)));
        }
        var known = slot == null ? abandoned.get(transferId) : slot;
        if (known != null && !known.admit()) {
            return Optional.of(
                    "transfer "
                            + transferId
                            + " has been asked for "
                            + PrefillSlot.MOST_ASKS
                            + " times");
        }
        if (slot != null && slot.isReady() && !slot.revoked()) {
            start(slot, ask);
            return Optional.empty();
        }
        if (waiting >= MAX_WAITING) {
            return Optional.of("this prefiller has " + MAX_WAITING + " requests waiting already");
        }
        var host = ask.exchange().host();
        if (waitingOfHost.getOrDefault(host, 0) >= MAX_WAITING_OF_HOST) {
            return Optional.of(
                    "this host has " + MAX_WAITING_OF_HOST + " requests waiting already");
        }
        var place = slot(transferId);
        waitingOfHost.merge(host, 1, Integer::sum);
        waiting++;
        try {
            place.waiting().add(ask);
        } catch (RuntimeException | Error e) {
            left(ask);
            throw e;
        }
        return Optional.empty();
    }

    /// A request does not wait any more.
    private void left(Ask ask) {
        waiting--;
        waitingOfHost.computeIfPresent(
                ask.exchange().host(), (_, count) -> count > 1 ? count - 1 : null);
    }

    /// The time of what of an exchange still waits for its prefill is up.
    void timeOut(PrefillExchange exchange) {
        var late = new ArrayList<String>();
        takeWaiting(
                exchange,
                (slot, ask) -> {
                    late.add(ask.request());
                    dealtWith(slot, ask, LATE);
                });
        exchange.failed(late, LATE.message());
    }

    /// The decoder of an exchange has gone.
    void abandon(PrefillExchange exchange) {
        exchange.gone();
        carrier.gone(exchange);
        var failure = PushQueue.gone(exchange);
        takeWaiting(
                exchange,
                (slot, ask) -> {
                    outbox.count("mooncake_num_abandoned_reqs");
                    dealtWith(slot, ask, failure);
                });
    }

    /// The prefill of a request that does not wait any more may come yet; its decoder counts as
    /// dealt with then, so that nothing is held for it.
    private void dealtWith(PrefillSlot slot, Ask ask, Failure failure) {
        slot.abandon(ask, failure);
        if (!slot.expected() && slot.waiting().isEmpty()) {
            slots.remove(slot.transferId());
            if (slot.transferId().length() <= LONGEST_KEPT) {
                abandoned.put(slot.transferId(), slot);
            }
        }
    }

    /// Takes out what of an exchange waits for its prefill.
    private void takeWaiting(PrefillExchange exchange, BiConsumer<PrefillSlot, Ask> then) {
        exchange.message()
                .reqBlocks()
                .forEach((request, wanted) -> {
                    var slot = slots.get(wanted.transferId());
                    var ask = new Ask(exchange, request, wanted);
                    if (slot != null && slot.waiting().remove(ask)) {
                        left(ask);
                        then.accept(slot, ask);
                    }
                });
    }

    private void start(PrefillSlot slot, Ask ask) {
        slot.begin(ask);
        pushes.add(slot, ask);
    }

    private void pushed(PrefillSlot slot, Ask ask, long bytes, Optional<Failure> problem) {
        try {
            slot.end(ask, bytes, problem);
            problem.ifPresentOrElse(
                    failure -> ask.exchange().failed(List.of(ask.request()), failure.toString()),
                    () -> ask.exchange().ok(ask.request()));
        } finally { // an answer that cannot be sent must not keep the hold
            settle(slot);
        }
    }

    /// Ends a slot whose work is done or whose hold is over.
    private void settle(PrefillSlot slot) {
        if (!slot.idle()
                || !(slot.revoked() || slot.done())
                || !slots.remove(slot.transferId(), slot)) {
            return;
        }
        var hold = slot.hold().orElseThrow();
        holds.remove(hold);
        for (int attempt = 1; ; attempt++) {
            try {
                tell(slot, hold);
                return;
            } catch (OutOfMemoryError e) { // nobody else says that the hold has ended
                HeapPause.after(attempt, e);
            }
        }
    }

    /// Called again where it threw for lack of memory.
    private void tell(PrefillSlot slot, TransferId hold) {
        if (slot.done()) {
            var reason = "this transfer has been fetched already";
            ended(slot.transferId(), reason);
            refuseWaiting(slot, reason); // who came after a revocation
            outbox.complete(
                    hold,
                    slot.failure()
                            .<Completion.Result>map(
                                    failure -> new Completion.Failed(failure, List.of()))
                            .orElse(new Completion.Completed(slot.bytes())));
        } else {
            var reason = expired(slot).message();
            ended(slot.transferId(), reason);
            refuseWaiting(slot, reason);
            outbox.complete(hold, new Completion.Revoked());
        }
    }

    /// Whoever asks for it from now on is refused at once.
    private void ended(String transferId, String reason) {
        if (transferId.length() <= LONGEST_KEPT) {
            ended.put(transferId, reason);
        }
    }

    private static Failure expired(PrefillSlot slot) {
        return new Failure(
                ErrorCode.LEASE_EXPIRED,
                "the prefiller no longer holds the blocks of " + slot.transferId());
    }

    private void refuseWaiting(PrefillSlot slot, String reason) {
        for (var ask = slot.waiting().poll(); ask != null; ask = slot.waiting().poll()) {
            left(ask);
            ask.exchange().failed(List.of(ask.request()), reason);
        }
    }

    private PrefillSlot slot(String transferId) {
        return slots.computeIfAbsent(
                transferId,
                id ->
                        Optional.ofNullable(abandoned.remove(id))
                                .orElseGet(() -> new PrefillSlot(id)));
    }

    private static Completion.Result failed(ErrorCode code, String text) {
        return new Completion.Failed(new Failure(code, text), List.of());
    }
}
