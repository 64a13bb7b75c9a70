// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.prefill;

import io.kvferry.backend.mooncake.p2p.common.MooncakePlan;
import io.kvferry.backend.mooncake.p2p.common.MooncakeSettings;
import io.kvferry.backend.mooncake.p2p.copy.CopyPlanner;
import io.kvferry.backend.mooncake.p2p.plane.DataPlane;
import io.kvferry.backend.mooncake.p2p.plane.HostBackends;
import io.kvferry.backend.mooncake.p2p.plane.OwnEngine;
import io.kvferry.backend.mooncake.p2p.prefill.PrefillSlot.Ask;
import io.kvferry.backend.mooncake.p2p.wire.PeerExtension;
import io.kvferry.backend.mooncake.p2p.wire.ReadReport;
import io.kvferry.backend.mooncake.p2p.wire.RequestBlocks;
import io.kvferry.backend.mooncake.p2p.wire.XferDecoder;
import io.kvferry.backend.mooncake.p2p.wire.XferEncoder;
import io.kvferry.backend.mooncake.p2p.wire.XferMetadata;
import io.kvferry.backend.mooncake.p2p.wire.XferResponse;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.toolkit.bounded.FairRoom;
import io.kvferry.toolkit.bounded.LoopReport;
import io.kvferry.toolkit.bounded.Outbox;
import io.kvferry.toolkit.bounded.RecentMap;
import io.kvferry.toolkit.bounded.SerialLoop;
import io.kvferry.toolkit.recovery.OpeningParts;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.BiConsumer;

/// The prefiller's side of one rank: pairs finished prefills with the decoder workers that ask for
/// them, and has [PushQueue] write.
///
/// Nobody waits in a thread: a request that comes before its prefill is noted, answered when the
/// prefill is ready, or when its time is up. Blocks are read only while the scheduler half holds
/// them: a revoked hold is answered when nothing reads them any more, and later requests for it are
/// refused at once.
///
/// Threading: calls from any thread; all state on the loop's thread.
public final class PrefillService implements SideChannel.Requests, AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(PrefillService.class);

    private static final int MAX_WAITING = 1 << 16;
    private static final int MAX_ENDED = 1 << 14;

    /// Of longer transfer ids, which clients may choose, nothing is kept when they have ended.
    private static final int LONGEST_KEPT = 1024;

    private static final String NOT_TAKEN =
            "this prefiller could not take the request up; see its log";

    /// Waiting requests of one host, so that it does not crowd the others out.
    public static final int MAX_WAITING_OF_HOST = 1 << 14;

    /// Messages of decoders that are not answered in full, see [FairRoom].
    private static final long MAX_OPEN_BYTES = 256L << 20;

    /// In vLLM's words.
    private static final Failure LATE =
            new Failure(ErrorCode.TIMEOUT, "Timeout waiting for P side ready.");

    private final SideChannel channel;
    private final PlanCache plans;

    /// In the form of [PeerExtension#worker].
    private final String self;

    private final String namespace;
    private final MooncakeSettings settings;
    private final Outbox outbox;
    private final SerialLoop loop;
    private final Carrier carrier;
    private final PushQueue pushes;

    private final Map<String, PrefillSlot> slots = new HashMap<>();
    private final Map<TransferId, PrefillSlot> holds = new HashMap<>();
    private final Map<String, String> ended = new RecentMap<>(MAX_ENDED);
    private final Map<SideChannel.Asker, List<PrefillExchange>> exchanges = new HashMap<>();

    /// Slots whose decoders have gone, or were told that they have waited too long, before anything
    /// was heard of the prefill.
    private final Map<String, PrefillSlot> abandoned = new RecentMap<>(MAX_ENDED);

    private final Map<String, Integer> waitingOfHost = new HashMap<>();
    private final FairRoom room = FairRoom.ofHeap(MAX_OPEN_BYTES, 8);
    private int waiting;

    public PrefillService(
            String name,
            SideChannel channel,
            DataPlane plane,
            CopyPlanner planner,
            String namespace,
            MooncakeSettings settings,
            Outbox outbox) {
        this.channel = channel;
        this.plans = new PlanCache(planner);
        this.self = planner.worker();
        this.namespace = namespace;
        this.settings = settings;
        this.outbox = outbox;
        try (var parts = new OpeningParts()) {
            this.loop = parts.add(new SerialLoop(name), SerialLoop::close);
            this.carrier =
                    switch (plane) {
                        case OwnEngine own -> new EngineWrites(own.engine(), settings, outbox);
                        case HostBackends backends ->
                                new ReadOffers(backends, channel, loop, settings);
                    };
            this.pushes = new PushQueue(carrier, loop, settings, outbox, this::pushed);
            parts.keep();
        }
    }

    // Calls of the scheduler half.

    /// A prefill for this transfer has begun.
    public void expect(String transferId) {
        loop.post(() -> {
            var slot = slot(transferId);
            slot.expect();
            slot.waiting().forEach(ask -> carrier.prepare(ask.exchange().message()));
        });
    }

    /// The prefill is done and its blocks are held.
    public void ready(MooncakePlan.Send send) {
        loop.post(() -> {
            var slot = slot(send.transferId());
            if (slot.isReady()) { // a transfer id used twice: the first one keeps it
                outbox.complete(
                        send.hold(),
                        failed(
                                ErrorCode.INVALID_REQUEST,
                                "transfer id in use: " + send.transferId()));
                return;
            }
            ended.remove(send.transferId());
            holds.put(send.hold(), slot); // before it serves: a revocation must find it
            slot.ready(send.hold(), send.blocks());
            var asks = List.copyOf(slot.waiting());
            slot.waiting().clear();
            // All count before the first one ends, or the hold would end under the others.
            asks.forEach(slot::begin);
            asks.forEach(ask -> pushes.add(slot, ask));
            asks.forEach(this::left);
            settle(slot); // whoever wanted it may have gone
        });
    }

    /// There will be no KV for this transfer.
    public void withdraw(MooncakePlan.Withdrawal withdrawal) {
        loop.post(() -> {
            ended(withdrawal.transferId(), withdrawal.reason());
            var slot = slots.get(withdrawal.transferId());
            if (slot != null && !slot.isReady()) {
                slots.remove(slot.transferId());
                refuseWaiting(slot, withdrawal.reason());
            }
        });
    }

    /// The hold has ended: stop, then say so.
    public void revoke(TransferId hold) {
        loop.post(() -> {
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
        });
    }

    // Messages of decoders.

    @Override
    public void onRequest(SideChannel.Asker asker, byte[] bytes) {
        boolean taken =
                loop.offer(
                        asker.host(),
                        bytes.length,
                        () -> {
                            try {
                                var report = ReadReport.decode(bytes);
                                if (report.isPresent()) {
                                    hear(asker, report.get());
                                } else {
                                    var message = XferDecoder.request(bytes);
                                    accept(asker, message, 2L * bytes.length + message.heapBytes());
                                }
                            } catch (KvFerryException e) {
                                reply(asker, XferResponse.error(String.valueOf(e.getMessage())));
                            }
                        });
        if (!taken) {
            reply(asker, XferResponse.error("this prefiller is overloaded"));
        }
    }

    /// The requests of a decoder end with its connection, or when it gives up: they must neither be
    /// served to the next process with its port and addresses, nor take places until their time is
    /// up.
    @Override
    public void onGone(SideChannel.Asker asker) {
        loop.post(() -> {
            var open = exchanges.remove(asker);
            if (open != null) {
                List.copyOf(open).forEach(this::abandon);
            }
        });
    }

    @Override
    public boolean shares() {
        return settings.sharesConnections();
    }

    /// A decoder has read what it was offered, or will not.
    private void hear(SideChannel.Asker asker, ReadReport report) {
        var problem = carrier.reported(report);
        reply(
                asker,
                problem.map(failure -> XferResponse.error(failure.message()))
                        .orElse(
                                new XferResponse(
                                        XferResponse.Status.FINISH, List.of(), List.of(), "", 0)));
    }

    /// @param cost heap that the message occupies, about
    private void accept(SideChannel.Asker asker, XferMetadata message, long cost) {
        if (message.extension().isPresent()
                && !message.extension().get().namespace().equals(namespace)) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "D computes other KV than P: model, runner, dtype or block size differ");
        }
        var meant = message.extension().map(PeerExtension::worker).orElse("");
        if (!meant.isEmpty() && !meant.equals(self)) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "D asks for worker %s of P (tp/pp) at an address of worker %s"
                            .formatted(meant, self));
        }
        var refusal = carrier.refusal(message);
        if (refusal.isPresent()) {
            throw new KvFerryException(ErrorCode.INCOMPATIBLE, refusal.get());
        }
        var plan = plans.plan(message);
        if (plan.isEmpty()) {
            reply(asker, XferResponse.layoutMiss(message.layoutId(), message.segmentName()));
            return;
        }
        var patience = Deadline.in(settings.abortTimeout());
        var writeBy =
                message.extension()
                        .map(extension ->
                                Deadline.in(Duration.ofMillis(extension.writeWithinMillis())))
                        .orElse(Deadline.in(settings.answerLimit()));
        var exchange = new PrefillExchange(asker, message, plan.get(), message.layoutId(), writeBy);
        if (message.reqBlocks().isEmpty()) {
            exchange.finishEmpty();
            return;
        }
        if (!room.take(asker.host(), cost)) {
            exchange.failed(
                    List.copyOf(message.reqBlocks().keySet()), "this prefiller is overloaded");
            return;
        }
        exchange.afterwards(() -> {
            room.give(asker.host(), cost);
            forget(asker, exchange);
        });
        try {
            exchanges.computeIfAbsent(asker, _ -> new ArrayList<>()).add(exchange);
            var timer =
                    channel.after(
                            patience.earlier(writeBy).remaining(),
                            () -> loop.post(() -> timeOut(exchange)));
            exchange.afterwards(timer::cancel);
        } catch (RuntimeException | Error e) { // want of memory; no request is taken up yet
            LoopReport.ERROR.log(LOG, "requests of a decoder could not be taken up", e);
            try {
                exchange.failed(List.copyOf(message.reqBlocks().keySet()), NOT_TAKEN);
            } finally {
                exchange.gone();
            }
            return;
        }
        takeUp(exchange);
        if (exchange.isOpen()
                && message.reqBlocks().values().stream()
                        .anyMatch(wanted -> isComputed(wanted.transferId()))) {
            carrier.prepare(message); // the exchange has its timer by now, whatever this does
        }
    }

    private void forget(SideChannel.Asker asker, PrefillExchange exchange) {
        var open = exchanges.get(asker);
        if (open != null) {
            open.remove(exchange);
            if (open.isEmpty()) {
                exchanges.remove(asker);
            }
        }
    }

    /// Takes up all requests of an exchange, or answers them.
    private void takeUp(PrefillExchange exchange) {
        var refused = new LinkedHashMap<String, List<String>>();
        exchange.message()
                .reqBlocks()
                .forEach((request, wanted) -> takeUp(exchange, request, wanted, refused));
        refused.forEach((reason, requests) -> exchange.failed(requests, reason));
    }

    /// What this meets refuses one request, and not those that are being served.
    private void takeUp(
            PrefillExchange exchange,
            String request,
            RequestBlocks wanted,
            Map<String, List<String>> refused) {
        try {
            ask(new Ask(exchange, request, wanted))
                    .ifPresent(reason ->
                            refused.computeIfAbsent(reason, _ -> new ArrayList<>()).add(request));
        } catch (RuntimeException | Error e) {
            LoopReport.ERROR.log(LOG, "a request of a decoder could not be taken up", e);
            refuse(exchange, request);
        }
    }

    private static void refuse(PrefillExchange exchange, String request) {
        try {
            exchange.failed(List.of(request), NOT_TAKEN);
        } catch (RuntimeException | Error e) { // its decoder waits for its own limit
            LoopReport.ERROR.log(LOG, "a decoder is not told that its request is refused", e);
        }
    }

    /// Whether a prefill has begun and is not done. For other transfers no address is looked up: a
    /// stranger could name any.
    private boolean isComputed(String transferId) {
        var slot = slots.get(transferId);
        return slot != null && slot.expected() && !slot.isReady();
    }

    /// Takes a request up.
    ///
    /// @return why not, if it is refused
    private Optional<String> ask(Ask ask) {
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

    private void timeOut(PrefillExchange exchange) {
        var late = new ArrayList<String>();
        takeWaiting(
                exchange,
                (slot, ask) -> {
                    late.add(ask.request());
                    dealtWith(slot, ask, LATE);
                });
        exchange.failed(late, LATE.message());
    }

    private void abandon(PrefillExchange exchange) {
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

    /// Says all that there is to say to a message.
    private static void reply(SideChannel.Asker asker, XferResponse response) {
        asker.last(XferEncoder.response(response));
    }

    private static Completion.Result failed(ErrorCode code, String text) {
        return new Completion.Failed(new Failure(code, text), List.of());
    }

    @Override
    public void close() {
        loop.close();
    }
}
