// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.prefill;

import io.kvferry.backend.mooncake.p2p.common.MooncakeSettings;
import io.kvferry.backend.mooncake.p2p.copy.ReadOffer;
import io.kvferry.backend.mooncake.p2p.plane.HostBackends;
import io.kvferry.backend.mooncake.p2p.plane.ReadWindow;
import io.kvferry.backend.mooncake.p2p.prefill.PrefillSlot.Ask;
import io.kvferry.backend.mooncake.p2p.wire.ReadReport;
import io.kvferry.backend.mooncake.p2p.wire.XferMetadata;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.bounded.SerialLoop;
import io.kvferry.toolkit.zmtp.SideChannel;

import java.security.SecureRandom;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Consumer;

/// Offers blocks to decoders that read them by transfer backends.
///
/// An offer is open while the blocks are held for it. The decoder uses what it read only when its
/// report finds the offer open: so the end of a hold takes effect at once, and what a decoder may
/// still read afterwards is thrown away there.
///
/// Threading: the prefill loop.
final class ReadOffers implements Carrier {
    private final HostBackends backends;
    private final SideChannel channel;
    private final SerialLoop loop;
    private final MooncakeSettings settings;
    private final SecureRandom random = new SecureRandom();
    private final Map<Long, Open> open = new HashMap<>();

    private record Open(
            PrefillExchange exchange, SideChannel.Timer timer, Consumer<Optional<Failure>> ended) {}

    ReadOffers(
            HostBackends backends,
            SideChannel channel,
            SerialLoop loop,
            MooncakeSettings settings) {
        this.backends = backends;
        this.channel = channel;
        this.loop = loop;
        this.settings = settings;
    }

    static Failure unknown() {
        return new Failure(
                ErrorCode.LEASE_EXPIRED,
                "the prefiller does not hold the blocks of this offer (any more)");
    }

    @Override
    public Optional<String> refusal(XferMetadata message) {
        boolean reads =
                message.extension().filter(extension -> !extension.reader().isEmpty()).isPresent();
        return reads
                ? Optional.empty()
                : Optional.of(
                        "P has its blocks read by transfer_backends ("
                                + backends.info().transport()
                                + "), which only kvferry decoders with transfer_backends can;"
                                + " vLLM's and others need a prefiller without");
    }

    @Override
    public Runnable start(
            PrefillSlot slot, Ask ask, Ranges ranges, Consumer<Optional<Failure>> ended) {
        long ticket = random.nextLong();
        var exchange = ask.exchange();
        var limit = settings.transferTimeout();
        byte[] offer;
        try {
            offer =
                    new ReadOffer(
                                    ticket,
                                    limit.toMillis(),
                                    new ReadWindow.Source(backends.self(), backends.metadata()),
                                    exchange.plan(),
                                    slot.blocks())
                            .encode();
        } catch (RuntimeException e) { // the border to the backends
            ended.accept(Optional.of(Failure.of(e)));
            return () -> {};
        }
        var timer =
                channel.after(
                        limit,
                        () ->
                                loop.post(() ->
                                        end(
                                                ticket,
                                                Optional.of(
                                                        new Failure(
                                                                ErrorCode.TIMEOUT,
                                                                "decoder "
                                                                        + exchange.decoder()
                                                                        + " did not say within "
                                                                        + limit.toMillis()
                                                                        + " ms that it has read")))));
        open.put(ticket, new Open(exchange, timer, ended));
        exchange.offer(ask.request(), offer);
        return () ->
                loop.post(() ->
                        end(
                                ticket,
                                Optional.of(
                                        new Failure(
                                                ErrorCode.CANCELLED,
                                                "the prefiller ended the offer"))));
    }

    /// False when it had ended before.
    private boolean end(long ticket, Optional<Failure> problem) {
        var ending = open.remove(ticket);
        if (ending == null) {
            return false;
        }
        ending.timer().cancel();
        ending.ended().accept(problem);
        return true;
    }

    @Override
    public void gone(PrefillExchange exchange) {
        var lost =
                new Failure(
                        ErrorCode.PEER_LOST,
                        "decoder " + exchange.decoder() + " has gone while it read");
        List.copyOf(open.entrySet()).stream()
                .filter(entry -> entry.getValue().exchange() == exchange)
                .forEach(entry -> end(entry.getKey(), Optional.of(lost)));
    }

    @Override
    public Optional<Failure> reported(ReadReport report) {
        var problem =
                report.error().isEmpty()
                        ? Optional.<Failure>empty()
                        : Optional.of(
                                new Failure(ErrorCode.PEER_REFUSED, "decoder: " + report.error()));
        return end(report.ticket(), problem) ? Optional.empty() : Optional.of(unknown());
    }
}
