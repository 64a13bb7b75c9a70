// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Prepared;
import io.kvferry.spi.transfer.Registration;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferBackend.PeerState;
import io.kvferry.spi.transfer.TransferBackendProvider;
import io.kvferry.spi.transfer.TransferBackends.Choice;
import io.kvferry.spi.transfer.TransferBackends.Ranking;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;

/// Two agents with the same backends, which know each other, and a page of memory on each side.
final class AgentPair implements AutoCloseable {
    static final int BYTES = 4096;
    private static long incarnations;

    final TransferAgent near;
    final TransferAgent far;
    final Ear nearEar = new Ear();
    final Ear farEar = new Ear();
    final MemorySegment nearBytes;
    final MemorySegment farBytes;
    final Registration nearMemory;
    final Registration farMemory;
    private final PluginCatalog catalog;
    private final Arena arena = Arena.ofShared();

    /// What an agent's sink heard.
    static final class Ear implements BackendContext.Sink {
        record Note(PeerId from, byte[] bytes) {}

        final ConcurrentLinkedQueue<Note> notes = new ConcurrentLinkedQueue<>();
        final ConcurrentLinkedQueue<PeerState> states = new ConcurrentLinkedQueue<>();

        @Override
        public void notified(PeerId from, byte[] notification) {
            notes.add(new Note(from, notification));
        }

        @Override
        public void peerChanged(PeerId peer, PeerState state, String why) {
            states.add(state);
        }
    }

    AgentPair(TestBackend... backends) {
        this(EventSink.NONE, backends);
    }

    AgentPair(EventSink events, TestBackend... backends) {
        this(events, TransferAgent.Loops.THREADS, Ranking.LISTED, backends);
    }

    AgentPair(TransferAgent.Loops loops, Ranking ranking, TestBackend... backends) {
        this(EventSink.NONE, loops, ranking, backends);
    }

    private AgentPair(
            EventSink events, TransferAgent.Loops loops, Ranking ranking, TestBackend... backends) {
        catalog = catalog(backends);
        var choices = choices(List.of(backends));
        near =
                TransferAgent.open(
                        options("near", ranking).withLoops(loops),
                        catalog,
                        choices,
                        nearEar,
                        events);
        far =
                TransferAgent.open(
                        options("far", ranking).withLoops(loops),
                        catalog,
                        choices,
                        farEar,
                        EventSink.NONE);
        nearBytes = arena.allocate(BYTES, 64);
        farBytes = arena.allocate(BYTES, 64);
        nearMemory = near.register(new MemoryRange.Host(nearBytes));
        farMemory = far.register(new MemoryRange.Host(farBytes));
        meet();
    }

    static List<Choice> choices(List<TestBackend> backends) {
        return backends.stream().map(backend -> new Choice(backend.name(), Map.of())).toList();
    }

    static PluginCatalog catalog(TestBackend... backends) {
        var catalog = PluginCatalog.ofClassPath();
        for (var backend : backends) {
            catalog.with(TransferBackendProvider.class, backend);
        }
        return catalog;
    }

    static TransferAgent.Options options(String agent, Ranking ranking) {
        return TransferAgent.Options.of(new PeerId(agent, ++incarnations), ranking);
    }

    /// An agent whose sink ignores everything.
    static TransferAgent open(String agent, PluginCatalog catalog, String... backends) {
        return TransferAgent.open(
                options(agent, Ranking.LISTED),
                catalog,
                Arrays.stream(backends).map(name -> new Choice(name, Map.of())).toList(),
                new Ear(),
                EventSink.NONE);
    }

    PluginCatalog catalog() {
        return catalog;
    }

    /// `other` becomes known to `agent`, with all that it has registered.
    static void meet(TransferAgent agent, TransferAgent other) {
        agent.loadPeer(other.self(), other.localMetadata());
    }

    void meet() {
        meet(near, far);
        meet(far, near);
    }

    Prepared local() {
        return near.prepare(Optional.empty(), DescriptorList.of(nearMemory));
    }

    Prepared remote() {
        return near.prepare(Optional.of(far.self()), DescriptorList.of(farMemory));
    }

    TransferRequest write() {
        return new TransferRequest(
                Operation.WRITE, local(), remote(), Deadline.in(Duration.ofSeconds(20)));
    }

    TransferRequest read() {
        return new TransferRequest(
                Operation.READ, local(), remote(), Deadline.in(Duration.ofSeconds(20)));
    }

    static TransferRequest notifying(TransferRequest request, byte[] bytes) {
        return new TransferRequest(
                request.operation(),
                request.local(),
                request.remote(),
                Optional.of(bytes),
                request.deadline(),
                request.tag());
    }

    static TransferOutcome end(Transfer transfer) throws Exception {
        return transfer.completion().toCompletableFuture().get(20, TimeUnit.SECONDS);
    }

    /// The notifications at the far agent, once there are that many.
    List<Ear.Note> awaitNotes(Ear ear, int count) {
        var limit = Deadline.in(Duration.ofSeconds(20));
        while (ear.notes.size() < count && !limit.passed()) {
            Thread.onSpinWait();
        }
        return new ArrayList<>(ear.notes);
    }

    /// Drives both agents until the transfer has ended; only with loops of the caller.
    TransferOutcome drive(Transfer transfer) {
        var limit = Deadline.in(Duration.ofSeconds(20));
        while (transfer.poll().isEmpty() && !limit.passed()) {
            near.poll();
            far.poll();
        }
        return transfer.poll().orElseThrow();
    }

    @Override
    public void close() {
        near.close();
        far.close();
        catalog.close();
        arena.close();
    }
}
