// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.wire.CacheShape;
import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.backend.nccl.wire.VllmMessage;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId.Direction;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireWriter;
import io.kvferry.toolkit.bounded.LoopReport;
import io.kvferry.toolkit.bounded.Outbox;
import io.kvferry.toolkit.bounded.SerialLoop;
import io.kvferry.toolkit.net.TroubleReports;
import io.kvferry.toolkit.recovery.OpeningParts;
import io.kvferry.toolkit.zmtp.CurveKeys;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;

/// The worker half of one rank: owns the side channel, the data plane and the two services.
///
/// Close order: the registration, so that routers send no more; the side channel, so that nothing
/// new comes; the data plane, after which nothing reads or writes blocks; the loops; the staging
/// memory.
///
/// Threading: as [WorkerConnector]. [#endStep] waits for what the step pushes, `push_timeout` at
/// most; with PUT [#saveLayer] does.
final class P2pWorker implements WorkerConnector {
    private static final Logger LOG = LoggerFactory.getLogger(P2pWorker.class);
    private static final int WIRE_VERSION = 1;
    private static final int MOST_ID = 4096;

    /// A request has one id, one shape and a number per KV cache group: far less than this.
    private static final int MOST_REQUEST_BYTES = 64 << 10;

    private static final Duration LOOK = Duration.ofSeconds(5);

    private final WorkerContext context;
    private final P2pSettings settings;
    private final DataPlane plane;
    private final Outbox outbox;
    private final SerialLoop loop;
    private final SerialLoop copies;
    private final SideChannel channel;
    private final long epoch;
    private Optional<CacheBlocks> blocks = Optional.empty();
    private Optional<SendService> sends = Optional.empty();
    private Optional<ReceiveService> receives = Optional.empty();
    private Optional<Registration> registration = Optional.empty();
    private String address = "";
    private Optional<StepPushes> pushes = Optional.empty();
    private boolean closing;
    private boolean closed;

    /// Of the channel's clock.
    private final TroubleReports troubles;

    /// @param plane closed with the worker, and also when this constructor fails
    P2pWorker(WorkerContext context, DataPlane plane) {
        this.context = context;
        this.plane = plane;
        try (var parts = new OpeningParts()) {
            parts.add(plane, DataPlane::close);
            this.settings = P2pSettings.from(context.options());
            this.epoch = context.engine().incarnation();
            this.outbox = new Outbox(context.rank().rank(), context.host()::wake);
            this.loop = parts.add(new SerialLoop(name("control")), SerialLoop::close);
            this.copies = parts.add(new SerialLoop(name("copy")), SerialLoop::close);
            this.channel =
                    parts.add(
                            new SideChannel(
                                    name("channel"),
                                    settings.secret()
                                            .map(secret ->
                                                    CurveKeys.shared(
                                                            secret.keyFor(
                                                                    "p2p nccl side channel")))),
                            SideChannel::close);
            this.troubles =
                    new TroubleReports(
                            context.host().events(), context.instance(), context.rank().rank());
            parts.keep();
        }
    }

    @Override
    public void registerRegions(List<KvRegion> regions) {
        var cache = new CacheBlocks(regions);
        blocks = Optional.of(cache);
        var shape = CacheShape.of(context.engine().namespace(), context.rank(), cache.regions());
        int rank = context.rank().rank();
        var own = new RankParts(loop, channel, plane, cache, shape, rank, epoch, settings, outbox);
        if (context.config().role().produces()) {
            var service = new SendService(own);
            sends = Optional.of(service);
            pushes = Optional.of(new StepPushes(settings, service));
        }
        if (context.config().role().consumes()) {
            var staging =
                    new StagedBlocks(
                            context.instance(),
                            context.host().stagingPool(),
                            settings.stagingBytes(),
                            cache);
            receives =
                    Optional.of(new ReceiveService(own, new StagedCopies(copies::post), staging));
        }
        var host = context.config().ip();
        int port = settings.port(context.config(), rank, context.engine().worldSize());
        address =
                channel.listen(host, settings.bindHost().orElse(host), port, port, new Port())
                        .substring("tcp://".length());
        channel.every(LOOK, () -> troubles.look(channel.trouble().or(plane::trouble)));
        if (rank == 0) {
            registration =
                    settings.proxy()
                            .map(proxy ->
                                    Registration.begin(
                                            channel,
                                            proxy,
                                            context.config().role(),
                                            context.config().ip(),
                                            address));
        }
        boolean nccl = plane.kind().contains("nccl");
        outbox.record(Stats.gauge("p2p_nccl_planes", nccl ? 1 : 0));
        if (!nccl && settings.ncclChannels() > 0) {
            LOG.info("{}: nccl_num_channels has no effect on the host plane", context.instance());
        }
        LOG.info(
                "{} rank {}: {} layers, {} over the {} plane, at {}",
                context.instance(),
                rank,
                regions.size(),
                settings.sendType(),
                plane.kind(),
                address);
    }

    /// What peers say. Whatever it is, the next message is served.
    private final class Port implements SideChannel.Requests {
        @Override
        public void onRequest(SideChannel.Asker asker, byte[] message) {
            boolean framed = PeerMessage.isFramed(message);
            if (message.length > MOST_REQUEST_BYTES) {
                LOG.debug("{} sent a request of {} bytes", asker.host(), message.length);
                if (framed) {
                    refuse(
                            asker,
                            new Failure(
                                    ErrorCode.INVALID_REQUEST,
                                    "a request of " + message.length + " bytes"));
                }
                return;
            }
            if (!framed) {
                answerVllm(asker, message);
                return;
            }
            try {
                var request = PeerMessage.decode(message);
                if (!loop.offer(
                        asker.host(),
                        message.length,
                        () -> dispatch(asker, request, message.length))) {
                    refuse(asker, new Failure(ErrorCode.BACKPRESSURE, "too many requests wait"));
                }
            } catch (KvFerryException e) {
                LOG.debug("{} sent no request: {}", asker.host(), e.toString());
                refuse(asker, Failure.of(e));
            } catch (OutOfMemoryError e) {
                refuse(asker, Failure.of(e));
            }
        }

        private void dispatch(SideChannel.Asker asker, PeerMessage request, int bytes) {
            try {
                take(asker, request, bytes);
            } catch (RuntimeException | Error e) { // no memory, for one: the peer need not wait
                LoopReport.ERROR.log(LOG, "a request of a peer failed", e);
                refuse(asker, Failure.of(e));
            }
        }

        private void take(SideChannel.Asker asker, PeerMessage request, int bytes) {
            switch (request) {
                case PeerMessage.Offer offer when receives.isPresent() ->
                        receives.get().onOffer(asker, offer);
                case PeerMessage.Unused unused when receives.isPresent() ->
                        receives.get().onUnused(asker, unused);
                case PeerMessage.Pull pull when sends.isPresent() ->
                        sends.get().onPull(asker, pull, bytes);
                case PeerMessage.Release release when sends.isPresent() ->
                        sends.get().onRelease(asker, release);
                default ->
                        refuse(
                                asker,
                                new Failure(
                                        ErrorCode.UNSUPPORTED,
                                        "this engine's role is " + context.config().role()));
            }
        }

        private void refuse(SideChannel.Asker asker, Failure failure) {
            asker.answer(new PeerMessage.Refused(epoch, failure).encode());
        }

        @Override
        public void onGone(SideChannel.Asker asker) {
            if (sends.isPresent()) { // without memory
                sends.get().gone(asker);
            }
        }
    }

    /// Protocol 0 moves tensors over NCCL, which the host plane cannot. Its peers are told that
    /// there is no memory, or no such tensor, and continue without.
    private void answerVllm(SideChannel.Asker asker, byte[] message) {
        try {
            var request = VllmMessage.decode(message);
            LOG.debug("{} speaks protocol 0: {}", asker.host(), request);
            switch (request) {
                case VllmMessage.Put _ -> asker.answer(VllmMessage.PUT_NO_MEMORY);
                case VllmMessage.Get _ -> asker.answer(new VllmMessage.Missing().encode());
                case VllmMessage.New _,
                        VllmMessage.Ping _,
                        VllmMessage.Goodbye _,
                        VllmMessage.Found _,
                        VllmMessage.Missing _ -> {}
            }
        } catch (KvFerryException e) {
            LOG.debug("{} sent no request: {}", asker.host(), e.toString());
        }
    }

    /// Why a string from a peer is not a valid transfer id; empty if it is.
    static Optional<Failure> misfit(String transfer) {
        return transfer.isEmpty() || transfer.length() > MOST_ID
                ? Optional.of(
                        new Failure(
                                ErrorCode.INVALID_REQUEST,
                                "a transfer id of " + transfer.length() + " characters"))
                : Optional.empty();
    }

    /// Why a transfer named by a peer is not for this rank; empty if it is.
    static Optional<Failure> misfit(PeerMessage.Transfer transfer, long epoch, CacheShape shape) {
        var noId = misfit(transfer.id());
        if (noId.isPresent()) {
            return noId;
        }
        if (transfer.to() != PeerMessage.ANY_EPOCH && transfer.to() != epoch) {
            return Optional.of(
                    new Failure(ErrorCode.STALE_INCARNATION, "the engine has restarted meanwhile"));
        }
        return shape.misfit(transfer.shape())
                .map(reason -> new Failure(ErrorCode.INCOMPATIBLE, reason));
    }

    @Override
    public Payload handshake() {
        return new WireWriter().string(address).toPayload(WIRE_VERSION);
    }

    /// Where the rank listens.
    ///
    /// @throws KvFerryException [ErrorCode#PROTOCOL]
    static String readHandshake(Payload handshake) {
        var in = handshake.reader();
        var address = in.string();
        in.end();
        return address;
    }

    @Override
    public void beginStep(WorkerStep step) {
        var plan = P2pPlan.decode(step.plan());
        for (var id : step.revoked()) {
            if (id.direction() == Direction.SAVE) {
                sends.ifPresent(service -> service.revoke(id));
            } else {
                receives.ifPresent(service -> service.revoke(id));
            }
        }
        pushes.ifPresent(all -> all.begin(plan.pushes()));
        sends.ifPresent(service -> {
            plan.holds().forEach(service::hold);
            plan.withdrawals().forEach(service::withdraw);
        });
        receives.ifPresent(service -> {
            plan.loads().forEach(service::load);
            plan.releases().forEach(service::release);
        });
    }

    @Override
    public void saveLayer(int layerIndex) {
        pushes.ifPresent(all -> all.saved(blocks.orElseThrow().partsThrough(layerIndex)));
    }

    @Override
    public void endStep(WorkerStep step, Set<String> notComputed) {
        pushes.ifPresent(all -> all.end(step.limit(), notComputed));
    }

    @Override
    public StepReport report(WorkerStep step) {
        countReceived();
        return outbox.report(
                step.number(), pushes.map(StepPushes::takeReport).orElse(Payload.EMPTY));
    }

    private void countReceived() {
        var counts = new TreeMap<String, Long>();
        plane.takeReceived()
                .forEach((way, bytes) -> {
                    if (bytes > 0) {
                        counts.put("p2p_bytes_received_" + way, bytes);
                    }
                });
        if (!counts.isEmpty()) {
            outbox.record(new Stats(counts, Map.of(), Map.of()));
        }
    }

    @Override
    public void close() {
        if (closed) {
            return;
        }
        if (!closing) {
            closing = true;
            registration.ifPresent(Registration::end);
            channel.close();
        }
        try {
            plane.close();
        } finally {
            loop.close();
            copies.close();
        }
        // Not where something still uses blocks: it may use staging memory, too.
        receives.ifPresent(ReceiveService::free);
        closed = true;
    }

    private String name(String part) {
        return "p2p-" + part + "-" + context.rank().rank();
    }
}
