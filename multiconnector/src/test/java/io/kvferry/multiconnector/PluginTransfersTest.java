// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.multiconnector.discovery.PluginJar;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.RankInfo;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.transfer.TransferBackendProvider;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.lang.foreign.Arena;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/// A connector from one folder of the plugin folder moves bytes by a transfer backend from another
/// one, and through the host's staging pool. It is compiled against the SPI alone.
class PluginTransfersTest {
    private static final int BLOCK = 4096;

    @TempDir Path temp;

    private static final String MOVER =
            """
            import io.kvferry.spi.*;
            import io.kvferry.spi.config.*;
            import io.kvferry.spi.kv.*;
            import io.kvferry.spi.memory.*;
            import io.kvferry.spi.transfer.*;
            import io.kvferry.spi.wire.*;
            import java.nio.charset.StandardCharsets;
            import java.time.Duration;
            import java.util.*;
            import java.util.concurrent.TimeUnit;

            public class Mover implements KvConnectorProvider {
                public String name() { return "MoverConnector"; }
                public String description() { return "copies block 0 to block 1, by staging memory"; }
                public SpiVersion.Range spiVersions() { return SpiVersion.Range.from(1, 0); }
                public OptionSchema options() { return OptionSchema.NONE; }
                public ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host) {
                    return ConnectorCapabilities.of();
                }
                public SchedulerConnector openScheduler(SchedulerContext context) {
                    throw new UnsupportedOperationException();
                }
                public WorkerConnector openWorker(WorkerContext context) { return new Half(context.host()); }

                static class Half implements WorkerConnector, BackendContext.Sink {
                    final HostServices host;
                    final TransferBackend backend;
                    final List<String> ways = new ArrayList<>();

                    Half(HostServices host) {
                        this.host = host;
                        this.backend = host.transfers().open(
                                new PeerId("mover", 1),
                                List.of(new TransferBackends.Choice("UCXLIKE", Map.of()), new TransferBackends.Choice("MEMORY", Map.of())),
                                TransferBackends.Ranking.LISTED,
                                this);
                    }

                    public void registerRegions(List<KvRegion> regions) {
                        var region = regions.getFirst();
                        var pool = host.stagingPool();
                        long bytes = region.blockBytes();
                        try (var cache = backend.register(region.memory());
                                var staging = backend.register(pool.range())) {
                            long buffer = pool.allocate("Mover", bytes);
                            var out = part(staging, pool.offset(buffer), bytes);
                            move(Operation.WRITE, part(cache, region.offset(0), bytes), out);
                            var last = move(Operation.READ, part(cache, region.offset(1), bytes), out);
                            pool.quarantine(buffer, last.quiesced());
                        }
                    }

                    private DescriptorList part(Registration memory, long offset, long bytes) {
                        return DescriptorList.of(
                                memory.memory().kind(), memory.device(), memory.address() + offset, bytes);
                    }

                    private Transfer move(Operation operation, DescriptorList here, DescriptorList there) {
                        try (var local = backend.prepare(Optional.empty(), here);
                                var remote = backend.prepare(Optional.empty(), there)) {
                            var transfer = backend.submit(new TransferRequest(
                                    operation, local, remote, Deadline.in(Duration.ofSeconds(20))));
                            var end = transfer.completion().toCompletableFuture().get(20, TimeUnit.SECONDS);
                            ways.addAll(transfer.attempts());
                            if (!(end instanceof TransferOutcome.Done)) {
                                throw new IllegalStateException(end.toString());
                            }
                            return transfer;
                        } catch (Exception e) {
                            throw new IllegalStateException(e);
                        }
                    }

                    public Payload handshake() {
                        return new Payload(1, String.join(" ", ways).getBytes(StandardCharsets.UTF_8));
                    }
                    public void beginStep(WorkerStep step) {}
                    public void endStep(WorkerStep step, Set<String> notComputed) {}
                    public StepReport report(WorkerStep step) { throw new UnsupportedOperationException(); }
                    public void notified(PeerId from, byte[] notification) {}
                    public void peerChanged(
                            PeerId peer, TransferBackend.PeerState state, String why) {}
                    public void close() { backend.close(); }
                }
            }
            """;

    private static final String UCX_LIKE =
            """
            import io.kvferry.spi.*;
            import io.kvferry.spi.config.*;
            import io.kvferry.spi.transfer.*;
            import io.kvferry.tck.memory.MemoryBackendProvider;

            public class UcxLike implements TransferBackendProvider {
                private final MemoryBackendProvider memory = new MemoryBackendProvider();
                public String name() { return "UCXLIKE"; }
                public String description() { return "in memory, driven by one thread as UCX is"; }
                public SpiVersion.Range spiVersions() { return SpiVersion.Range.from(1, 0); }
                public OptionSchema options() { return OptionSchema.NONE; }
                private OptionValues confined() {
                    return memory.options().read("UCXLIKE", java.util.Map.of("threading", "confined", "fabric", "ucx"));
                }
                public BackendCapabilities capabilities(OptionValues options) {
                    return memory.capabilities(confined());
                }
                public TransferBackend open(BackendContext context) {
                    return memory.open(new BackendContext(
                            context.self(), confined(), context.sink(), context.events()));
                }
            }
            """;

    @Test
    void aConnectorOfAnotherClassLoaderOpensBackendsAndSharesTheStagingPool() throws Exception {
        var plugins = Files.createDirectories(temp.resolve("plugins"));
        new PluginJar(temp.resolve("work-mover"), plugins.resolve("mover").resolve("p.jar"))
                .against(HostServices.class)
                .source("Mover", MOVER)
                .provider(KvConnectorProvider.class, "Mover")
                .build();
        new PluginJar(temp.resolve("work-ucx"), plugins.resolve("ucx").resolve("p.jar"))
                .source("UcxLike", UCX_LIKE)
                .provider(TransferBackendProvider.class, "UcxLike")
                .build();
        var catalog = PluginCatalog.of(getClass().getClassLoader(), plugins);
        try (var kvferry = Kvferry.open(catalog, EventSink.NONE, 1 << 20);
                var arena = Arena.ofShared()) {
            var connector =
                    kvferry.kv("{\"kv_connector\": \"MoverConnector\", \"kv_role\": \"kv_both\"}");
            assertThat(connector.provider().getClass().getClassLoader())
                    .isNotSameAs(getClass().getClassLoader());
            var memory = arena.allocate(2 * BLOCK, BLOCK);
            memory.asSlice(0, BLOCK).fill((byte) 42);
            try (var half = connector.openWorker(engine(), RankInfo.SINGLE)) {
                half.registerRegions(
                        List.of(
                                new KvRegion(
                                        "l0",
                                        0,
                                        0,
                                        new MemoryRange.Host(memory),
                                        2,
                                        BLOCK,
                                        BLOCK)));

                assertThat(memory.asSlice(0, BLOCK).mismatch(memory.asSlice(BLOCK, BLOCK)))
                        .isEqualTo(-1);
                assertThat(new String(half.handshake().bytes(), StandardCharsets.UTF_8))
                        .isEqualTo("UCXLIKE UCXLIKE");
                var pool = kvferry.services().stagingPool();
                assertThat(pool.available()).isEqualTo(pool.capacity());
            }
        }
    }

    private static EngineInfo engine() {
        var group =
                new KvCacheGroup(
                        0,
                        KvCacheGroup.Kind.FULL_ATTENTION,
                        new KvFormat.Heads(DType.FLOAT32, KvLayout.LBNHC, 1, 2),
                        List.of("l0"),
                        4,
                        BLOCK);
        var spec = new KvCacheSpec(List.of(group), 2);
        var namespace = new CacheNamespace("m", "r", DType.FLOAT32, KvLayout.LBNHC, 1, 4, 1, 1, "");
        return new EngineInfo("m", namespace, spec, 1, 0, 1);
    }
}
