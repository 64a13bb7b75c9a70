// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.P2pSettings.SendType;
import io.kvferry.backend.nccl.gpu.TensorLanes;
import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.vllm.TensorForm;
import io.kvferry.backend.nccl.vllm.VllmExchange;
import io.kvferry.backend.nccl.vllm.VllmExchange.Load;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferId.Direction;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireWriter;
import io.kvferry.toolkit.bounded.HeapPause;
import io.kvferry.toolkit.bounded.LoopReport;
import io.kvferry.toolkit.bounded.Outbox;
import io.kvferry.toolkit.bounded.RecentMap;
import io.kvferry.toolkit.net.TroubleReports;
import io.kvferry.toolkit.recovery.OpeningParts;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/// The worker half of one rank that exchanges KV with vLLM's P2pNcclEngines (`protocol: 0`): the
/// plans of [P2pScheduler], in which transfers are vLLM's request ids, carried out by a
/// [VllmExchange].
///
/// Close order: the registration, the side channel, the exchange and its communicators.
///
/// Threading: as [WorkerConnector].
final class VllmWorker implements WorkerConnector, StepPushes.Pushes {
    private static final Logger LOG = LoggerFactory.getLogger(VllmWorker.class);
    private static final int WIRE_VERSION = 1;
    private static final int REMEMBERED = 1 << 14;
    private static final Duration CONTROL_LIMIT = Duration.ofSeconds(10);
    private static final Duration LOOK = Duration.ofSeconds(1);

    private final WorkerContext context;
    private final P2pSettings settings;
    private final TensorLanes lanes;
    private final Outbox outbox;
    private final SideChannel channel;
    private final StepPushes pushes;
    private final boolean gets;
    private final Map<TransferId, Load> loads = new ConcurrentHashMap<>();
    private final Map<TransferId, String> holds = new ConcurrentHashMap<>();
    private final Map<TransferId, Boolean> revoked =
            Collections.synchronizedMap(new RecentMap<>(REMEMBERED));
    private Optional<VllmExchange> exchange = Optional.empty();
    private Optional<TensorForm> form = Optional.empty();
    private Optional<Registration> registration = Optional.empty();
    private String address = "";
    private boolean closing;
    private boolean closed;

    /// Of the channel's clock.
    private final TroubleReports troubles;

    /// @param lanes closed with the worker, and also when this constructor fails
    VllmWorker(WorkerContext context, TensorLanes lanes) {
        HeapPause.load();
        LoopReport.load();
        this.context = context;
        this.lanes = lanes;
        try (var parts = new OpeningParts()) {
            parts.add(lanes, TensorLanes::close);
            this.settings = P2pSettings.from(context.options());
            this.gets = settings.sendType() == SendType.GET;
            int rank = context.rank().rank();
            this.outbox = new Outbox(rank, context.host()::wake);
            this.channel = parts.add(new SideChannel("p2p-channel-" + rank), SideChannel::close);
            this.pushes = new StepPushes(settings, this);
            this.troubles = new TroubleReports(context.host().events(), context.instance(), rank);
            parts.keep();
        }
    }

    /// What protocol 0 cannot do, at the start.
    ///
    /// @throws KvFerryException [ErrorCode#BAD_CONFIG], [ErrorCode#UNSUPPORTED]
    static void check(WorkerContext context, P2pSettings settings) {
        var role = context.config().role();
        if (role == KvRole.BOTH) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "protocol 0 needs kv_producer or kv_consumer: vLLM's engines know one role");
        }
        if (settings.secret().isPresent()) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "protocol 0 has no authentication, and this fleet has a secret");
        }
        if (context.rank().ppSize() > 1) {
            throw new KvFerryException(
                    ErrorCode.UNSUPPORTED, "protocol 0 with pipeline-parallel stages");
        }
        boolean stages = role.consumes() && settings.sendType() != SendType.GET;
        if (stages && context.host().stagingPool().capacity() == 0) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "protocol 0 keeps what is put in the host's staging pool, and there is none");
        }
    }

    @Override
    public void registerRegions(List<KvRegion> regions) {
        var tensors = new TensorForm(context.engine().cache(), regions, settings.tensorShape());
        form = Optional.of(tensors);
        boolean stages = context.config().role().consumes() && !gets;
        var made =
                new VllmExchange(
                        lanes,
                        tensors,
                        channel,
                        CONTROL_LIMIT,
                        settings.pushLimit(),
                        stages
                                ? new VllmExchange.Staging(
                                        context.host().stagingPool(),
                                        context.instance(),
                                        settings.stagingBytes(),
                                        settings.stagedLimit())
                                : null);
        exchange = Optional.of(made);
        int rank = context.rank().rank();
        var host = context.config().ip();
        int port = settings.port(context.config(), rank, context.engine().worldSize());
        address = made.listen(host, settings.bindHost().orElse(host), port);
        channel.every(LOOK, this::look);
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
        outbox.record(Stats.gauge("p2p_nccl_planes", 1));
        LOG.info(
                "{} rank {}: {} layers, {} with vLLM's engines over {}, at {}",
                context.instance(),
                rank,
                regions.size(),
                settings.sendType(),
                lanes.description(),
                address);
    }

    private void look() {
        loads.values().forEach(Load::look);
        troubles.look(channel.trouble().or(lanes::trouble));
    }

    @Override
    public Payload handshake() {
        return new WireWriter().string(address).toPayload(WIRE_VERSION);
    }

    @Override
    public void beginStep(WorkerStep step) {
        var plan = P2pPlan.decode(step.plan());
        step.revoked().forEach(this::revoke);
        pushes.begin(plan.pushes());
        plan.holds().forEach(this::hold);
        plan.withdrawals().forEach(each -> exchange().withdraw(each.transfer()));
        plan.loads().forEach(this::load);
        plan.releases().forEach(each -> exchange().refuse(each.transfer()));
    }

    private VllmExchange exchange() {
        return exchange.orElseThrow();
    }

    private void revoke(TransferId id) {
        revoked.put(id, true);
        if (id.direction() == Direction.SAVE) {
            var request = holds.get(id);
            if (request != null) {
                exchange().withdraw(request); // answered when it has ended
                return;
            }
        } else {
            var load = loads.get(id);
            if (load != null) {
                load.cancel();
                return;
            }
        }
        outbox.complete(id, new Completion.Revoked());
    }

    // ---- prefiller

    @Override
    public PushTask push(P2pPlan.Push plan) {
        var task = new PushTask(plan);
        var peer = P2pScheduler.address(plan.decoder(), context.rank().rank());
        if (peer.isEmpty()) {
            task.ended(new Outcome.Failed(noRank()));
            return task;
        }
        task.begun(
                exchange()
                        .put(
                                plan.transfer(),
                                peer.get(),
                                plan.blocks().getFirst(),
                                Deadline.in(settings.transferLimit()),
                                outcome -> {
                                    count(outcome, "p2p_bytes_sent", "p2p_sends_failed");
                                    task.ended(outcome);
                                    if (outcome instanceof Outcome.Failed(var why)) {
                                        LoopReport.WARN.log(
                                                LOG, "{} was not put: {}", plan.transfer(), why);
                                    }
                                }));
        return task;
    }

    private static Failure noRank() {
        return new Failure(ErrorCode.INVALID_REQUEST, "the peer has no port for this rank");
    }

    /// Counts, unless there is no memory for it: nothing depends on a figure.
    private void count(Outcome outcome, String bytes, String failures) {
        try {
            switch (outcome) {
                case Outcome.Done(var count) -> outbox.record(Stats.counter(bytes, count));
                case Outcome.Failed _ -> outbox.count(failures);
            }
        } catch (OutOfMemoryError _) {
            Thread.onSpinWait();
        }
    }

    @Override
    public void giveUp(PushTask task) {
        task.giveUp();
    }

    @Override
    public void tooSlow(PushTask task) {
        P2pScheduler.address(task.plan().decoder(), context.rank().rank())
                .ifPresent(exchange()::avoid);
    }

    private void hold(P2pPlan.Hold plan) {
        if (revoked.containsKey(plan.id())) {
            return;
        }
        holds.put(plan.id(), plan.transfer());
        exchange()
                .offer(
                        plan.transfer(),
                        plan.blocks().getFirst(),
                        outcome -> holdEnded(plan.id(), outcome));
    }

    /// The blocks of the hold are no longer read.
    void holdEnded(TransferId id, Outcome outcome) {
        count(outcome, "p2p_bytes_sent", "p2p_sends_failed");
        holds.remove(id);
        complete(id, outcome);
    }

    /// Reports the end of a transfer. Repeats it while there is no memory for it: the exchange
    /// tells of the end once.
    private void complete(TransferId id, Outcome outcome) {
        for (int attempt = 1; ; attempt++) {
            try {
                outbox.complete(id, result(id, outcome));
                return;
            } catch (OutOfMemoryError e) {
                HeapPause.after(attempt, e);
            }
        }
    }

    private Completion.Result result(TransferId id, Outcome outcome) {
        return switch (outcome) {
            case Outcome.Done(var bytes) -> new Completion.Completed(bytes);
            case Outcome.Failed(var why) ->
                    revoked.containsKey(id)
                            ? new Completion.Revoked()
                            : new Completion.Failed(why, List.of());
        };
    }

    // ---- decoder

    private void load(P2pPlan.Load plan) {
        if (revoked.containsKey(plan.id())) {
            return;
        }
        var peer = P2pScheduler.address(plan.prefiller(), context.rank().rank());
        if (peer.isEmpty() || loads.size() >= settings.maxLoads()) {
            var why =
                    peer.isPresent()
                            ? new Failure(
                                    ErrorCode.BACKPRESSURE,
                                    settings.maxLoads() + " loads of this rank are open")
                            : plan.prefiller().addresses().isEmpty()
                                    ? new Failure(
                                            ErrorCode.UNSUPPORTED,
                                            "blocks from the middle of a prompt")
                                    : noRank();
            if (peer.isPresent() && !gets) {
                exchange().refuse(plan.transfer());
            }
            outbox.complete(plan.id(), new Completion.Failed(why, List.of()));
            return;
        }
        var open = new OpenLoad();
        loads.put(plan.id(), open);
        open.begun(
                exchange()
                        .load(
                                gets,
                                plan.transfer(),
                                peer.get(),
                                form.orElseThrow().blocksOf(plan.prompt().tokens()),
                                plan.blocks().getFirst(),
                                Deadline.in(settings.receiveLimit()),
                                outcome -> loadEnded(plan.id(), outcome)));
    }

    /// The blocks of the load are no longer written.
    void loadEnded(TransferId id, Outcome outcome) {
        count(outcome, "p2p_bytes_received_nccl", "p2p_loads_failed");
        loads.remove(id);
        complete(id, outcome);
    }

    /// A load that may have ended before it was begun. It is cancelled by the step thread alone.
    private static final class OpenLoad implements Load {
        private volatile Load begun =
                new Load() {
                    @Override
                    public void cancel() {}

                    @Override
                    public void look() {}
                };

        void begun(Load load) {
            begun = load;
        }

        @Override
        public void cancel() {
            begun.cancel();
        }

        @Override
        public void look() {
            begun.look();
        }
    }

    // ---- steps

    @Override
    public void saveLayer(int layerIndex) {
        pushes.saved(form.orElseThrow().layersThrough(layerIndex));
    }

    @Override
    public void endStep(WorkerStep step, Set<String> notComputed) {
        pushes.end(step.limit(), notComputed);
    }

    @Override
    public StepReport report(WorkerStep step) {
        long refused = exchange.map(VllmExchange::takeRefusedPeers).orElse(0L);
        if (refused > 0) {
            outbox.record(Stats.counter("p2p_peers_refused", refused));
        }
        return outbox.report(step.number(), pushes.takeReport());
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
        exchange.ifPresentOrElse(VllmExchange::close, lanes::close);
        closed = true;
    }
}
