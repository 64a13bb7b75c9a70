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
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.toolkit.bounded.FairRoom;
import io.kvferry.toolkit.bounded.LoopReport;
import io.kvferry.toolkit.bounded.Outbox;
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

/// The prefiller's side of one rank: receives requests of decoders, passes them to [PrefillSlots],
/// and ends those that time out or whose decoder is gone.
///
/// Threading: calls from any thread; all state on the loop's thread.
public final class PrefillService implements SideChannel.Requests, AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(PrefillService.class);

    private static final String NOT_TAKEN =
            "this prefiller could not take the request up; see its log";

    /// Waiting requests of one host, so that it does not crowd the others out.
    public static final int MAX_WAITING_OF_HOST = PrefillSlots.MAX_WAITING_OF_HOST;

    /// Messages of decoders that are not answered in full, see [FairRoom].
    private static final long MAX_OPEN_BYTES = 256L << 20;

    private final SideChannel channel;
    private final PlanCache plans;

    /// In the form of [PeerExtension#worker].
    private final String self;

    private final String namespace;
    private final MooncakeSettings settings;
    private final SerialLoop loop;
    private final Carrier carrier;
    private final PrefillSlots slots;
    private final Map<SideChannel.Asker, List<PrefillExchange>> exchanges = new HashMap<>();

    private final FairRoom room = FairRoom.ofHeap(MAX_OPEN_BYTES, 8);

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
        try (var parts = new OpeningParts()) {
            this.loop = parts.add(new SerialLoop(name), SerialLoop::close);
            this.carrier =
                    switch (plane) {
                        case OwnEngine own -> new EngineWrites(own.engine(), settings, outbox);
                        case HostBackends backends ->
                                new ReadOffers(backends, channel, loop, settings);
                    };
            this.slots = new PrefillSlots(carrier, loop, settings, outbox);
            parts.keep();
        }
    }

    // Calls of the scheduler half.

    /// A prefill for this transfer has begun.
    public void expect(String transferId) {
        loop.post(() -> slots.expect(transferId));
    }

    /// The prefill is done and its blocks are held.
    public void ready(MooncakePlan.Send send) {
        loop.post(() -> slots.ready(send));
    }

    /// There will be no KV for this transfer.
    public void withdraw(MooncakePlan.Withdrawal withdrawal) {
        loop.post(() -> slots.withdraw(withdrawal));
    }

    /// The hold has ended: stop, then say so.
    public void revoke(TransferId hold) {
        loop.post(() -> slots.revoke(hold));
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

    /// The requests of a decoder end when its connection is lost or it gives up. Otherwise they
    /// would be served to the next process with its port and addresses, and occupy slots until they
    /// time out.
    @Override
    public void onGone(SideChannel.Asker asker) {
        loop.post(() -> {
            var open = exchanges.remove(asker);
            if (open != null) {
                List.copyOf(open).forEach(slots::abandon);
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
        boolean noted = false;
        try {
            exchange.afterwards(() -> {
                room.give(asker.host(), cost);
                forget(asker, exchange);
            });
            noted = true;
        } finally {
            if (!noted) { // after an OutOfMemoryError
                room.give(asker.host(), cost);
            }
        }
        try {
            exchanges.computeIfAbsent(asker, _ -> new ArrayList<>()).add(exchange);
            var timer =
                    channel.after(
                            patience.earlier(writeBy).remaining(),
                            () -> loop.post(() -> slots.timeOut(exchange)));
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
                        .anyMatch(wanted -> slots.isComputed(wanted.transferId()))) {
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
            slots.ask(new Ask(exchange, request, wanted))
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

    /// Says all that there is to say to a message.
    private static void reply(SideChannel.Asker asker, XferResponse response) {
        asker.last(XferEncoder.response(response));
    }

    @Override
    public void close() {
        loop.close();
    }
}
