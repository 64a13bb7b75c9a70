// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.prefill;

import io.kvferry.backend.mooncake.p2p.common.MooncakeSettings;
import io.kvferry.backend.mooncake.p2p.prefill.PrefillSlot.Ask;
import io.kvferry.backend.mooncake.p2p.wire.PeerExtension;
import io.kvferry.backend.mooncake.p2p.wire.XferMetadata;
import io.kvferry.backend.mooncake.te.EngineOutcome;
import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.EngineTransfer;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.observe.Distribution;
import io.kvferry.spi.observe.Stats;
import io.kvferry.toolkit.bounded.Outbox;
import io.kvferry.toolkit.bounded.RecentMap;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Semaphore;
import java.util.function.Consumer;

/// Writes blocks into decoders' memory by the connector's own transfer engine.
final class EngineWrites implements Carrier {
    private static final Logger LOG = LoggerFactory.getLogger(EngineWrites.class);

    /// Decoders remembered as prepared. Preparing one again costs little.
    private static final int MOST_PREPARED = 1024;

    /// Decoders that are looked up at a time; others are left to their writes.
    private static final int MOST_LOOKUPS = 16;

    /// Preallocated, for when there is no memory to describe the failure.
    private static final Optional<Failure> NOT_DESCRIBED =
            Optional.of(new Failure(ErrorCode.NO_MEMORY, "no memory to describe a failure"));

    private final TransferEngine engine;
    private final MooncakeSettings settings;
    private final Outbox outbox;

    /// Segments and incarnations of decoders that are known to the engine, or being looked up.
    private final Map<String, String> prepared = new RecentMap<>(MOST_PREPARED);

    private final Semaphore lookups = new Semaphore(MOST_LOOKUPS);

    EngineWrites(TransferEngine engine, MooncakeSettings settings, Outbox outbox) {
        this.engine = engine;
        this.settings = settings;
        this.outbox = outbox;
    }

    @Override
    public Optional<String> refusal(XferMetadata message) {
        return message.extension()
                .filter(extension -> !extension.reader().isEmpty())
                .map(extension ->
                        "D reads by transfer_backends, and P writes with a transfer engine of its"
                                + " own; set transfer_backends on both sides or on none");
    }

    /// Looks a decoder up while its prompt is computed, so that the first write to a new decoder
    /// need not wait for its addresses, nor for mapping its memory.
    @Override
    public void prepare(XferMetadata message) {
        var incarnation = message.extension().map(PeerExtension::incarnation).orElse("");
        var segment = message.segmentName();
        if (incarnation.isEmpty() // not a kvferry peer: it is left to the write
                || !engine.info().grants()
                || incarnation.equals(prepared.get(segment))
                || !lookups.tryAcquire()) {
            return;
        }
        prepared.put(segment, incarnation);
        var by = Deadline.in(settings.transferTimeout());
        boolean begun = false;
        try {
            // Not a virtual one: its read may never be woken after the heap was full.
            var _ =
                    Thread.ofPlatform()
                            .name("kvferry-te-io-prepare")
                            .daemon()
                            .start(() -> open(segment, by));
            begun = true;
        } catch (OutOfMemoryError e) { // no thread: the write does without
            LOG.debug("decoder {} is not looked up ahead: {}", segment, e.toString());
        } finally {
            if (!begun) {
                lookups.release();
            }
        }
    }

    private void open(String segment, Deadline by) {
        try {
            var _ = engine.open(segment, by);
        } catch (KvFerryException e) { // the write will say so, if it is still so then
            LOG.debug("decoder {} is not looked up ahead: {}", segment, e.getMessage());
        } finally {
            lookups.release();
        }
    }

    @Override
    public Runnable start(
            PrefillSlot slot, Ask ask, Ranges ranges, Consumer<Optional<Failure>> ended) {
        long begun = System.nanoTime();
        long bytes = ranges.totalBytes();
        int descriptors = ranges.size();
        var request = request(ask, ranges);
        // A decoder that learns of a failure may reuse its blocks, so no failure may be reported
        // while the transfer writes. Everything that allocates is therefore done before it starts.
        return engine.submit(
                request,
                transfer -> {
                    tell(transfer, begun, bytes, descriptors, ended);
                    return transfer::cancel;
                });
    }

    private void tell(
            EngineTransfer transfer,
            long begun,
            long bytes,
            int descriptors,
            Consumer<Optional<Failure>> ended) {
        transfer.quiesced()
                .thenCombine(transfer.outcome(), (_, outcome) -> outcome)
                .thenAccept(outcome -> {
                    switch (outcome) {
                        case EngineOutcome.Completed(_, _, String path) -> {
                            try {
                                record(path, System.nanoTime() - begun, bytes, descriptors);
                            } finally { // whatever counting throws, it has ended
                                ended.accept(Optional.empty());
                            }
                        }
                        case EngineOutcome.Failed(var failure, _) ->
                                ended.accept(optional(failure));
                    }
                });
    }

    private static Optional<Failure> optional(Failure failure) {
        try {
            return Optional.of(failure);
        } catch (OutOfMemoryError _) {
            return NOT_DESCRIBED;
        }
    }

    private EngineRequest request(Ask ask, Ranges ranges) {
        var exchange = ask.exchange();
        var by = Deadline.in(settings.transferTimeout()).earlier(exchange.writeBy());
        var request = EngineRequest.write(exchange.message().segmentName(), ranges, by);
        if (!engine.info().grants()) { // Mooncake's library has no words for what follows
            return request;
        }
        var extension = exchange.message().extension();
        return request.withIncarnation(extension.map(PeerExtension::incarnation).orElse(""))
                .withCapability(
                        extension
                                .map(given -> given.grants().getOrDefault(ask.request(), 0L))
                                .orElse(0L));
    }

    /// @param path the transport that carried the bytes, as the engine reports it
    private void record(String path, long nanos, long bytes, int descriptors) {
        outbox.record(
                new Stats(
                        Map.of(
                                "mooncake_num_successful_transfers",
                                1L,
                                "mooncake_num_transfers_over_" + path,
                                1L),
                        Map.of(),
                        Map.of(
                                "mooncake_xfer_time_us", Distribution.of(nanos / 1000),
                                "mooncake_bytes_transferred", Distribution.of(bytes),
                                "mooncake_num_descriptors", Distribution.of(descriptors))));
    }
}
