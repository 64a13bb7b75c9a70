// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapClient;
import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapRegistrar;
import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapServer;
import io.kvferry.backend.mooncake.p2p.bootstrap.ReservedEngine;
import io.kvferry.backend.mooncake.p2p.bootstrap.WorkerRegistration;
import io.kvferry.backend.mooncake.p2p.common.MooncakePlan;
import io.kvferry.backend.mooncake.p2p.common.MooncakeSettings;
import io.kvferry.backend.mooncake.p2p.copy.CopyPlanner;
import io.kvferry.backend.mooncake.p2p.decode.DecodeService;
import io.kvferry.backend.mooncake.p2p.decode.FetchRequests;
import io.kvferry.backend.mooncake.p2p.plane.DataPlane;
import io.kvferry.backend.mooncake.p2p.plane.RegionMemory;
import io.kvferry.backend.mooncake.p2p.prefill.PrefillService;
import io.kvferry.backend.mooncake.p2p.wire.PeerExtension;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId.Direction;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.ProvidedMemory;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireWriter;
import io.kvferry.toolkit.bounded.Outbox;
import io.kvferry.toolkit.net.TroubleReports;
import io.kvferry.toolkit.recovery.OpeningParts;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.slf4j.event.Level;

import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import java.util.Set;

/// The worker half of one rank: owns what moves the bytes, the side channel and the two services.
///
/// Close order: stop being found, stop the side channel, end the services, end the transfers,
/// unregister.
///
/// Threading: as [WorkerConnector]; none of its methods waits for a peer, except [#registerRegions]
/// for the bootstrap service.
final class MooncakeWorker implements WorkerConnector {
    private static final Logger LOG = LoggerFactory.getLogger(MooncakeWorker.class);
    private static final int HANDSHAKE_VERSION = 1;
    private static final Duration LOOK = Duration.ofSeconds(1);

    private final WorkerContext context;
    private final MooncakeSettings settings;
    private final Outbox outbox;
    private final DataPlane plane;
    private final Optional<Rehearsal> rehearsal;
    private final SideChannel channel;
    private final Optional<BootstrapServer> bootstrap;
    private Optional<RegionMemory> memory = Optional.empty();
    private Optional<PrefillService> prefill = Optional.empty();
    private Optional<DecodeService> decode = Optional.empty();
    private Optional<BootstrapRegistrar> registrar = Optional.empty();
    private boolean stopped;
    private boolean closed;

    /// Of the channel's clock.
    private final TroubleReports troubles;

    /// @param plane closed with the worker, also when there is none because this fails
    /// @param rehearsal under way, which ends before [#registerRegions] does
    MooncakeWorker(WorkerContext context, DataPlane plane, Optional<Rehearsal> rehearsal) {
        this.rehearsal = rehearsal;
        this.context = context;
        this.plane = plane;
        try (var parts = new OpeningParts()) {
            parts.add(plane, DataPlane::close);
            this.troubles =
                    new TroubleReports(
                            context.host().events(), context.instance(), context.rank().rank());
            this.settings = MooncakeSettings.from(context.options());
            this.outbox = new Outbox(context.rank().rank(), context.host()::wake);
            this.channel =
                    parts.add(
                            new SideChannel(name("channel"), settings.curve()), SideChannel::close);
            boolean leads =
                    context.config().role().produces()
                            && context.rank().rank() == 0
                            && settings.bootstrapAddress().isEmpty();
            bootstrap =
                    leads
                            ? Optional.of(
                                    BootstrapServer.start(
                                            settings.bindHost().orElse(context.config().ip()),
                                            settings.bootstrapPort(),
                                            settings.secret(),
                                            new ReservedEngine(
                                                    context.config().engineId(),
                                                    dataParallelRank(),
                                                    incarnation())))
                            : Optional.empty();
            parts.keep();
        }
    }

    @Override
    public Optional<ProvidedMemory> provideMemory(long bytes) {
        return plane.provideMemory(bytes);
    }

    @Override
    public void registerRegions(List<KvRegion> regions) {
        var registered = new RegionMemory(plane, regions);
        memory = Optional.of(registered);
        var namespace = HexFormat.of().formatHex(context.engine().namespace().contentDigest());
        if (context.config().role().consumes()) {
            decode =
                    Optional.of(
                            new DecodeService(
                                    name("decode"),
                                    channel,
                                    plane,
                                    registered,
                                    new FetchRequests(
                                            plane,
                                            registered,
                                            kvHeads(context.engine().cache()),
                                            context.rank(),
                                            context.engine().namespace(),
                                            settings),
                                    settings,
                                    outbox));
        }
        if (context.config().role().produces()) {
            var planner =
                    new CopyPlanner(
                            regions,
                            context.engine().cache(),
                            context.rank(),
                            PeerExtension.layout(context.engine().namespace()),
                            settings.trustsLayouts());
            var service =
                    new PrefillService(
                            name("prefill"), channel, plane, planner, namespace, settings, outbox);
            prefill = Optional.of(service);
            var host = context.config().ip();
            var address =
                    channel.listen(
                            host,
                            settings.bindHost().orElse(host),
                            settings.minPort(),
                            settings.maxPort(),
                            service);
            registrar =
                    Optional.of(
                            BootstrapRegistrar.start(
                                    BootstrapClient.baseAddress(bootstrapAddress()),
                                    registration(address),
                                    settings.connectorTimeout(),
                                    settings.secret()));
        }
        rehearsal.ifPresent(Rehearsal::await);
        channel.every(
                LOOK,
                () ->
                        troubles.look(
                                plane.trouble()
                                        .or(channel::trouble)
                                        .or(() -> bootstrap.flatMap(BootstrapServer::trouble))));
        boolean rehearses = context.instance().equals(Rehearsal.INSTANCE);
        LOG.atLevel(rehearses ? Level.DEBUG : Level.INFO)
                .log(
                        "{} rank {}: {} regions, {}, over {}, as {}",
                        context.instance(),
                        context.rank().rank(),
                        regions.size(),
                        plane.info().kind(),
                        plane.info().transport(),
                        plane.info().segmentName());
    }

    private WorkerRegistration registration(String address) {
        var rank = context.rank();
        return new WorkerRegistration(
                context.config().engineId(),
                dataParallelRank(),
                rank.tpRank(),
                rank.ppRank(),
                address,
                Optional.of(
                        new WorkerRegistration.Extra(
                                incarnation(),
                                rank.tpSize(),
                                rank.ppSize(),
                                plane.info().grants(),
                                BootstrapRegistrar.LEASE)));
    }

    private int dataParallelRank() {
        return settings.dataParallelRank(context.engine(), context.config().engineId());
    }

    private String incarnation() {
        return Long.toHexString(context.engine().incarnation());
    }

    private String bootstrapAddress() {
        return bootstrap
                .map(server -> "http://" + context.config().ip() + ":" + server.port())
                .or(settings::bootstrapAddress)
                .orElseGet(
                        () -> "http://" + context.config().ip() + ":" + settings.bootstrapPort());
    }

    @Override
    public Payload handshake() {
        boolean speaks = context.config().role().produces() && context.rank().rank() == 0;
        return speaks
                ? new WireWriter().string(bootstrapAddress()).toPayload(HANDSHAKE_VERSION)
                : Payload.EMPTY;
    }

    @Override
    public void beginStep(WorkerStep step) {
        var plan = MooncakePlan.decode(step.plan());
        prefill.ifPresent(service -> {
            plan.expects().forEach(service::expect);
            plan.sends().forEach(service::ready);
            plan.withdrawals().forEach(service::withdraw);
        });
        if (!plan.pulls().isEmpty()) {
            decode.ifPresent(service -> service.pull(plan.pulls()));
        }
        for (var id : step.revoked()) {
            if (id.direction() == Direction.SAVE) {
                prefill.ifPresent(service -> service.revoke(id));
            } else {
                decode.ifPresent(service -> service.revoke(id));
            }
        }
    }

    @Override
    public void endStep(WorkerStep step, Set<String> notComputed) {
        // Blocks are sent under a hold, after the request has ended; a step saves nothing.
    }

    @Override
    public StepReport report(WorkerStep step) {
        outbox.record(plane.drainStats());
        return outbox.report(step.number(), Payload.EMPTY);
    }

    @Override
    public void close() {
        if (closed) {
            return;
        }
        if (!stopped) {
            stopped = true;
            stop();
        }
        plane.close();
        closed = true;
        memory.ifPresent(RegionMemory::close);
    }

    private void stop() {
        rehearsal.ifPresent(Rehearsal::await);
        registrar.ifPresent(BootstrapRegistrar::close);
        bootstrap.ifPresent(BootstrapServer::close);
        channel.close();
        prefill.ifPresent(PrefillService::close);
        decode.ifPresent(DecodeService::close);
    }

    /// KV heads of the model, 1 where every rank has all of them.
    private static int kvHeads(KvCacheSpec cache) {
        for (var group : cache.groups()) {
            if (group.format() instanceof KvFormat.Heads heads) {
                return heads.kvHeads();
            }
        }
        return 1;
    }

    private String name(String part) {
        return "mooncake-" + part + "-" + context.rank().rank();
    }
}
