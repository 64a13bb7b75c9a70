// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.TransferBackendProvider;
import io.kvferry.spi.transfer.TransferOutcome;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/// Two agents with the same backends, which know each other, and a page of memory on each side.
final class AgentPair implements AutoCloseable {
    static final int BYTES = 4096;
    private static long incarnations;

    final TransferAgent near;
    final TransferAgent far;
    final MemorySegment nearBytes;
    final MemorySegment farBytes;
    final MemoryHandle nearMemory;
    final MemoryHandle farMemory;
    private final PluginCatalog catalog;
    private final Arena arena = Arena.ofShared();

    AgentPair(TestBackend... backends) {
        this(EventSink.NONE, backends);
    }

    AgentPair(EventSink events, TestBackend... backends) {
        this(events, AgentOptions.Loops.THREADS, Map.of(), backends);
    }

    AgentPair(AgentOptions.Loops loops, Map<String, Integer> priorities, TestBackend... backends) {
        this(EventSink.NONE, loops, priorities, backends);
    }

    private AgentPair(
            EventSink events,
            AgentOptions.Loops loops,
            Map<String, Integer> priorities,
            TestBackend... backends) {
        catalog = catalog(backends);
        var configs = new ArrayList<BackendConfig>();
        for (var backend : backends) {
            configs.add(
                    new BackendConfig(
                            backend.name(), priorities.getOrDefault(backend.name(), 0), Map.of()));
        }
        near = TransferAgent.open(options("near").withLoops(loops), catalog, configs, events);
        far = TransferAgent.open(options("far").withLoops(loops), catalog, configs, EventSink.NONE);
        nearBytes = arena.allocate(BYTES, 64);
        farBytes = arena.allocate(BYTES, 64);
        nearMemory = near.register(new MemoryRange.Host(nearBytes));
        farMemory = far.register(new MemoryRange.Host(farBytes));
        meet();
    }

    static PluginCatalog catalog(TestBackend... backends) {
        var catalog = PluginCatalog.ofClassPath();
        for (var backend : backends) {
            catalog.with(TransferBackendProvider.class, backend);
        }
        return catalog;
    }

    static AgentOptions options(String agent) {
        return AgentOptions.of(new PeerId(agent, ++incarnations));
    }

    PluginCatalog catalog() {
        return catalog;
    }

    void meet() {
        near.loadPeer(far.localMetadata());
        far.loadPeer(near.localMetadata());
    }

    PreparedList local() {
        return near.prepare(Optional.empty(), nearMemory.whole());
    }

    PreparedList remote() {
        return near.prepare(Optional.of(far.self()), farMemory.whole());
    }

    TransferSpec write() {
        return new TransferSpec(
                Operation.WRITE, local(), remote(), Deadline.in(Duration.ofSeconds(20)));
    }

    TransferSpec read() {
        return new TransferSpec(
                Operation.READ, local(), remote(), Deadline.in(Duration.ofSeconds(20)));
    }

    static TransferOutcome end(AgentTransfer transfer) throws Exception {
        return transfer.completion().toCompletableFuture().get(20, TimeUnit.SECONDS);
    }

    /// Drives both agents until the transfer has ended; only with loops of the caller.
    TransferOutcome drive(AgentTransfer transfer) {
        var limit = Deadline.in(Duration.ofSeconds(20));
        while (transfer.poll().isEmpty() && !limit.passed()) {
            near.poll();
            far.poll();
        }
        return transfer.poll().orElseThrow();
    }

    List<TransferAgent> both() {
        return List.of(near, far);
    }

    @Override
    public void close() {
        near.close();
        far.close();
        catalog.close();
        arena.close();
    }
}
