// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import io.kvferry.backend.mooncake.p2p.common.MooncakePlan;
import io.kvferry.backend.mooncake.p2p.common.MooncakeSettings;
import io.kvferry.backend.mooncake.p2p.plane.DataPlane;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.ProvidedMemory;
import io.kvferry.spi.memory.RankInfo;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.transfer.TransferBackends;
import io.kvferry.toolkit.recovery.OpeningParts;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.foreign.Arena;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;
import java.util.stream.IntStream;

/// Hands small caches from a prefiller to a decoder, both in this process, before the first
/// request. The first hand-off of a JVM loads and links some 1,500 classes, among them those of an
/// HTTP client and server, which takes longer than moving the cache of a short prompt. Runs once
/// per JVM and class loader, over each path that the options allow, on loopback with its own ports.
///
/// Threading: the hand-offs run on a thread of their own; methods may be called from any thread.
final class Rehearsal {
    /// The name of its workers.
    static final String INSTANCE = "rehearsal";

    private static final Logger LOG = LoggerFactory.getLogger(Rehearsal.class);
    private static final AtomicBoolean BEGUN = new AtomicBoolean();

    /// Limit of the whole rehearsal. The connector opens when it expires, too.
    private static final Duration LIMIT = Duration.ofSeconds(30);

    /// Enough calls for the C1 compiler to compile the code of a hand-off.
    private static final int HAND_OFFS = 24;

    private static final MooncakePlan NOTHING =
            new MooncakePlan(List.of(), List.of(), List.of(), List.of());

    private static final int LAYERS = 2;
    private static final int BLOCKS = 8;
    private static final int BLOCK_BYTES = 32 << 10;

    /// Options that name this engine's place in the fleet, or its own ports.
    private static final List<String> LEFT_OUT =
            List.of(
                    "bootstrap_server_address",
                    "VLLM_MOONCAKE_BOOTSTRAP_PORT",
                    "VLLM_MOONCAKE_CONNECTOR_TIMEOUT",
                    "data_parallel_rank",
                    "bind_host",
                    "min_port",
                    "max_port",
                    "curve_server_key",
                    "curve_client_keys");

    private final Thread thread;

    private Rehearsal(WorkerContext context, Function<WorkerContext, DataPlane> planes) {
        this.thread =
                Thread.ofPlatform()
                        .name("mooncake-rehearsal")
                        .daemon()
                        .unstarted(() -> run(context, planes));
    }

    /// Starts a rehearsal, unless there was one in this JVM or the options disable it.
    ///
    /// @param planes opens the data plane of a worker
    static Optional<Rehearsal> begin(
            WorkerContext context, Function<WorkerContext, DataPlane> planes) {
        var settings = MooncakeSettings.from(context.options());
        if (!settings.rehearsal()
                || !settings.transferBackends().isEmpty()
                || !settings.engine().equals("java")
                || !BEGUN.compareAndSet(false, true)) {
            return Optional.empty();
        }
        try {
            var rehearsal = new Rehearsal(context, planes);
            rehearsal.thread.start();
            return Optional.of(rehearsal);
        } catch (OutOfMemoryError e) { // no thread: the connector works without a rehearsal
            BEGUN.set(false);
            LOG.info("no rehearsal for now: {}", e.toString());
            return Optional.empty();
        }
    }

    /// Waits for the end of the rehearsal, or for its limit.
    void await() {
        try {
            thread.join(LIMIT.plusSeconds(1));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static void run(WorkerContext context, Function<WorkerContext, DataPlane> planes) {
        long began = System.nanoTime();
        var limit = Deadline.in(LIMIT);
        try {
            if (MooncakeSettings.from(context.options()).crossMemory()) {
                handOff(context, planes, true, limit);
            }
            handOff(context, planes, false, limit);
            LOG.debug(
                    "rehearsed in {} ms", TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began));
        } catch (RuntimeException | Error e) { // not fatal: only the first hand-off is slower
            LOG.info("no rehearsal, the first hand-off will take longer: {}", e.toString());
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /// Hands a few caches over.
    ///
    /// @param sameHost whether the decoder's memory is shared; else by socket
    /// @throws KvFerryException when one fails, or time is up
    static void handOff(
            WorkerContext context,
            Function<WorkerContext, DataPlane> planes,
            boolean sameHost,
            Deadline limit)
            throws InterruptedException {
        var heard = new Semaphore(0);
        try (var arena = Arena.ofShared();
                var p = new Actor(context, planes, KvRole.PRODUCER, sameHost, heard, arena);
                var d = new Actor(context, planes, KvRole.CONSUMER, sameHost, heard, arena)) {
            for (int i = 0; i < HAND_OFFS; i++) {
                handOff(p, d, i, heard, limit);
            }
        }
    }

    private static void handOff(Actor p, Actor d, int number, Semaphore heard, Deadline limit)
            throws InterruptedException {
        var transfer = "rehearsal-" + number;
        var hold = TransferId.save(transfer, 0);
        var load = TransferId.load(transfer, 0);
        var blocks = List.of(IntStream.range(0, BLOCKS).toArray());
        d.step(
                new MooncakePlan(
                        List.of(),
                        List.of(),
                        List.of(),
                        List.of(
                                new MooncakePlan.Pull(
                                        load,
                                        transfer,
                                        transfer,
                                        p.engineId,
                                        p.bootstrap(),
                                        blocks,
                                        (long) LAYERS * BLOCKS * BLOCK_BYTES))),
                limit);
        p.step(
                new MooncakePlan(
                        List.of(transfer),
                        List.of(new MooncakePlan.Send(hold, transfer, blocks)),
                        List.of(),
                        List.of()),
                limit);
        while (!p.hasCompleted(hold) || !d.hasCompleted(load)) {
            if (!heard.tryAcquire(limit.remainingNanos(), TimeUnit.NANOSECONDS)) {
                throw new KvFerryException(
                        ErrorCode.TIMEOUT, "a hand-off within the process took too long");
            }
            p.step(NOTHING, limit);
            d.step(NOTHING, limit);
        }
    }

    /// One side: a worker with a small cache.
    private static final class Actor implements AutoCloseable {
        final String engineId;
        private final MooncakeWorker worker;
        private Optional<ProvidedMemory> provided = Optional.empty();
        private final Map<TransferId, Completion.Result> completed = new HashMap<>();
        private long steps;

        Actor(
                WorkerContext of,
                Function<WorkerContext, DataPlane> planes,
                KvRole role,
                boolean sameHost,
                Semaphore heard,
                Arena arena) {
            this.engineId = "rehearsal-" + role;
            var context = context(of, role, engineId, sameHost, heard);
            long bytes = (long) LAYERS * BLOCKS * BLOCK_BYTES;
            this.worker = new MooncakeWorker(context, planes.apply(context), Optional.empty());
            try (var parts = new OpeningParts()) {
                parts.add(this, Actor::close);
                this.provided = worker.provideMemory(bytes);
                register(arena, bytes);
                parts.keep();
            }
        }

        private void register(Arena arena, long bytes) {
            var memory =
                    provided.map(own -> own.range().hostSegment())
                            .orElseGet(() -> arena.allocate(bytes, 4096));
            var regions = new ArrayList<KvRegion>();
            for (int layer = 0; layer < LAYERS; layer++) {
                long layerBytes = (long) BLOCKS * BLOCK_BYTES;
                regions.add(
                        new KvRegion(
                                "layer." + layer,
                                layer,
                                0,
                                new MemoryRange.Host(
                                        memory.asSlice(layer * layerBytes, layerBytes)),
                                BLOCKS,
                                BLOCK_BYTES,
                                BLOCK_BYTES));
            }
            worker.registerRegions(regions);
        }

        private static WorkerContext context(
                WorkerContext of, KvRole role, String id, boolean sameHost, Semaphore heard) {
            var extra = new LinkedHashMap<>(of.config().extra());
            LEFT_OUT.forEach(extra::remove);
            extra.put("bootstrap_port", 0);
            extra.put("connector_timeout", LIMIT.toSeconds() + "s");
            extra.put("cross_memory", sameHost);
            extra.put("wire_generation", "G7");
            var cache =
                    new KvCacheSpec(
                            List.of(
                                    new KvCacheGroup(
                                            0,
                                            KvCacheGroup.Kind.FULL_ATTENTION,
                                            new KvFormat.Heads(DType.UINT8, KvLayout.LBHNC, 1, 8),
                                            List.of("layer.0", "layer.1"),
                                            16,
                                            BLOCK_BYTES)),
                            BLOCKS);
            var namespace =
                    new CacheNamespace(
                            "rehearsal", "none", DType.UINT8, KvLayout.LBHNC, 1, 16, 1, 1, "");
            var config = ConnectorConfig.of(of.config().connector(), role, id, extra);
            return new WorkerContext(
                    INSTANCE,
                    config,
                    MooncakeSettings.SCHEMA.read(id, extra),
                    new EngineInfo("rehearsal", namespace, cache, 1, 0, of.engine().incarnation()),
                    new RankInfo(0, 1, 0, 1, 0, 1),
                    HostServices.of(
                            EventSink.NONE,
                            TransferBackends.NONE,
                            StagingPool.NONE,
                            heard::release));
        }

        String bootstrap() {
            return worker.handshake().reader().string();
        }

        void step(MooncakePlan plan, Deadline limit) {
            var step = new WorkerStep(++steps, plan.encode(), List.of(), false, limit);
            worker.beginStep(step);
            worker.endStep(step, Set.of());
            for (var completion : worker.report(step).completions()) {
                completed.put(completion.id(), completion.result());
            }
        }

        /// @throws KvFerryException when it has failed
        boolean hasCompleted(TransferId id) {
            var result = completed.get(id);
            if (result != null && !(result instanceof Completion.Completed)) {
                throw new KvFerryException(ErrorCode.INTERNAL, engineId + ": " + result);
            }
            return result != null;
        }

        @Override
        public void close() {
            worker.close();
            provided.ifPresent(ProvidedMemory::close);
        }
    }
}
