// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.multiconnector.PartFigures;
import io.kvferry.multiconnector.agent.TransferPlan.Candidate;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.ProvidedMemory;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Prepared;
import io.kvferry.spi.transfer.Registration;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferBackends.Choice;
import io.kvferry.spi.transfer.TransferBackends.Ranking;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

/// A transfer backend composed of other backends, modelled on NIXL's agent. For the contract see
/// [io.kvferry.spi.transfer.TransferBackends], which hosts implement with this class.
///
/// Threading: any thread. With [Loops#CALLER] the thread that opened the agent drives its CONFINED
/// backends by calling [#poll], and has to close it.
public final class TransferAgent implements TransferBackend {
    /// The driver of CONFINED backends.
    public enum Loops {
        /// A thread per backend, owned by the agent.
        THREADS,
        /// The thread that opened the agent, by calling [TransferAgent#poll]: for tests, and for
        /// engines with a loop of their own.
        CALLER
    }

    /// Settings of one agent.
    ///
    /// @param self the name that peers know it by, and this life's incarnation
    /// @param loops who drives CONFINED backends
    /// @param callLimit longest wait for a call on the loop of a CONFINED backend
    public record Options(PeerId self, Ranking ranking, Loops loops, Duration callLimit) {
        /// An agent with its own threads, and 30 s for calls.
        public static Options of(PeerId self, Ranking ranking) {
            return new Options(self, ranking, Loops.THREADS, Duration.ofSeconds(30));
        }

        /// The same with other loops.
        public Options withLoops(Loops other) {
            return new Options(self, ranking, other, callLimit);
        }
    }

    /// Includes transfers that wait for room anywhere within the agent.
    private static final int MOST_UNDER_WAY = OwnerLoop.QUEUE;

    private final Options options;
    private final OpenBackends slots;
    private final BackendCapabilities capabilities;
    private final PeerTable peers;
    private final AgentTelemetry telemetry;
    private final Selector selector;
    private final MemoryTable memory;
    private final PeerExchange exchange;
    private final AtomicInteger underWay = new AtomicInteger();
    private final AtomicBoolean closed = new AtomicBoolean();

    private TransferAgent(Options options, EventSink events, OpenBackends slots, PeerTable peers) {
        this.options = options;
        this.slots = slots;
        this.peers = peers;
        this.capabilities =
                AgentCapabilities.of(
                        slots.all().stream().map(OpenBackend::capabilities).toList(),
                        options.loops());
        this.memory = new MemoryTable(slots);
        this.exchange = new PeerExchange(options.self(), slots, peers);
        this.telemetry = new AgentTelemetry(options.self().agent(), events, peers);
        this.selector =
                new Selector(
                        List.copyOf(slots.all()), peers, telemetry.record(), options.ranking());
    }

    /// Opens an agent and its backends; when one cannot be opened, those before it are closed
    /// again.
    ///
    /// @param catalog where backends come from; outlives the agent
    /// @param choices what to open, best first
    /// @param sink hears notifications and states of peers
    /// @throws KvFerryException what the catalog, the options or a backend say
    public static TransferAgent open(
            Options options,
            PluginCatalog catalog,
            List<Choice> choices,
            BackendContext.Sink sink,
            EventSink events) {
        if (choices.isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "agent " + options.self() + " needs at least one backend");
        }
        var peers = new PeerTable(sink);
        var opening = new OpenBackends.Opening(options, catalog, events, peers::sinkOf);
        return new TransferAgent(options, events, OpenBackends.open(opening, choices), peers);
    }

    public PeerId self() {
        return options.self();
    }

    @Override
    public BackendCapabilities capabilities() {
        return capabilities;
    }

    /// Registers with every backend that supports this memory kind. At least one must accept; a
    /// backend that refuses is reported as an incident and listed by [#explain].
    ///
    /// @throws KvFerryException when every backend refused
    @Override
    public Registration register(MemoryRange range) {
        checkOpen();
        var area = memory.register(range);
        telemetry.refusedMemory(area);
        return area;
    }

    /// From the first backend that can provide memory.
    @Override
    public Optional<ProvidedMemory> provideMemory(long bytes) {
        checkOpen();
        return slots.all().stream()
                .map(slot ->
                        slot.make(
                                "provideMemory",
                                backend -> backend.provideMemory(bytes),
                                made -> made.ifPresent(ProvidedMemory::close)))
                .flatMap(Optional::stream)
                .findFirst();
    }

    @Override
    public byte[] localMetadata() {
        checkOpen();
        return exchange.localMetadata();
    }

    /// Loads the peer on every backend that both agents have, or on none.
    ///
    /// @throws KvFerryException as the contract says, also INCOMPATIBLE when there is no backend in
    ///   common, and INVALID_REQUEST when the peer has this agent's own name
    @Override
    public void loadPeer(PeerId peer, byte[] section) {
        checkOpen();
        exchange.load(peer, section);
    }

    @Override
    public void dropPeer(PeerId peer) {
        checkOpen();
        exchange.drop(peer);
        telemetry.record().forget(peer.agent());
    }

    /// The entry of a peer, for tests.
    Optional<PeerTable.Entry> peer(String agent) {
        return peers.find(agent);
    }

    @Override
    public Prepared prepare(Optional<PeerId> peer, DescriptorList descriptors) {
        checkOpen();
        peer.ifPresent(exchange::checkCurrent);
        return memory.prepare(peer, descriptors);
    }

    @Override
    public Prepared select(Prepared all, int[] indices) {
        checkOpen();
        all.peer().ifPresent(exchange::checkCurrent);
        return memory.select(own(all), indices);
    }

    @Override
    public String explain(TransferRequest request) {
        return plan(request).text();
    }

    /// How a transfer would go now.
    TransferPlan plan(TransferRequest request) {
        checkOpen();
        check(request);
        return selector.plan(request);
    }

    @Override
    public Transfer submit(TransferRequest request) {
        var plan = plan(request);
        if (plan.usable().isEmpty()) {
            throw new KvFerryException(
                    unusable(plan), "no backend can do this transfer:\n" + plan.text());
        }
        admit(own(request.local()), own(request.remote()));
        RunningTransfer transfer;
        try {
            transfer = new RunningTransfer(host, request, plan);
            telemetry.decided(request, plan);
        } catch (RuntimeException | Error e) { // it does not start, so nobody ends it
            host.ended(request);
            throw e;
        }
        transfer.start();
        var refusal = transfer.refusal();
        if (refusal.isPresent()) {
            throw refusal.get().toException();
        }
        return transfer;
    }

    private void admit(AgentPrepared local, AgentPrepared remote) {
        if (underWay.incrementAndGet() > MOST_UNDER_WAY) {
            underWay.decrementAndGet();
            throw new KvFerryException(
                    ErrorCode.BACKPRESSURE,
                    "agent " + self() + ": " + MOST_UNDER_WAY + " transfers are under way");
        }
        boolean first = local.retain();
        if (first && remote.retain()) {
            return;
        }
        underWay.decrementAndGet();
        if (first) {
            local.release();
        }
        throw invalid("a prepared list is closed");
    }

    /// PEER_LOST if any backend was rejected for that reason, otherwise UNSUPPORTED.
    private static ErrorCode unusable(TransferPlan plan) {
        return plan.candidates().stream()
                .flatMap(one -> one.rejected().stream())
                .map(Failure::code)
                .filter(code -> code == ErrorCode.PEER_LOST)
                .findFirst()
                .orElse(ErrorCode.UNSUPPORTED);
    }

    private AgentPrepared own(Prepared list) {
        if (list instanceof AgentPrepared own && own.isOf(memory)) {
            if (own.isClosed()) {
                throw invalid("a prepared list is closed");
            }
            return own;
        }
        throw invalid("a prepared list is not of agent " + self());
    }

    private void check(TransferRequest request) {
        var local = own(request.local());
        var remote = own(request.remote());
        if (local.peer().isPresent()) {
            throw invalid(
                    "the local list is prepared for "
                            + local.peer().get()
                            + "; are the sides swapped?");
        }
        remote.peer().ifPresent(exchange::checkCurrent);
        if (request.notification().isPresent()
                && !capabilities.has(BackendCapabilities.Feature.NOTIFY)) {
            throw new KvFerryException(
                    ErrorCode.UNSUPPORTED,
                    "no backend of agent " + self() + " has notifications: " + slots.names());
        }
        if (request.notification().isPresent() && remote.peer().isEmpty()) {
            throw invalid("a transfer within this agent has nobody to notify");
        }
        if (!local.descriptors().pairsWith(remote.descriptors())) {
            throw invalid(
                    "the sides differ: " + local.descriptors() + " and " + remote.descriptors());
        }
        int alignment = Math.min(local.alignment(), remote.alignment());
        if (alignment < capabilities.alignment()) {
            throw invalid(
                    "addresses and lengths must be multiples of "
                            + capabilities.alignment()
                            + ", these are multiples of "
                            + alignment);
        }
    }

    private static KvFerryException invalid(String what) {
        return new KvFerryException(ErrorCode.INVALID_REQUEST, what);
    }

    private final RunningTransfer.Host host =
            new RunningTransfer.Host() {
                @Override
                public OpenBackend slot(String backend) {
                    return slots.get(backend);
                }

                @Override
                public void attempted(
                        RunningTransfer transfer,
                        Candidate candidate,
                        TransferOutcome outcome,
                        long nanos) {
                    slots.get(candidate.backend()).figures().count(outcome, nanos);
                    telemetry.attempted(transfer, candidate, outcome, nanos);
                }

                @Override
                public void ended(TransferRequest request) {
                    underWay.decrementAndGet();
                    try {
                        ((AgentPrepared) request.local()).release();
                    } finally {
                        ((AgentPrepared) request.remote()).release();
                    }
                }
            };

    /// By the first backend that can, reaches the peer and takes it.
    @Override
    public void notify(PeerId peer, byte[] notification) {
        checkOpen();
        if (!capabilities.has(BackendCapabilities.Feature.NOTIFY)) {
            throw new KvFerryException(
                    ErrorCode.UNSUPPORTED, "agent " + self() + " has no notifications");
        }
        exchange.notify(peer, notification);
    }

    /// The estimate of the cheapest backend with such a route, corrected by the measured times of
    /// transfers of this size.
    @Override
    public Optional<Long> estimateNanos(
            Operation operation, Optional<PeerId> peer, int descriptors, long bytes) {
        checkOpen();
        return selector.estimate(operation, peer, descriptors, bytes);
    }

    /// Asks the first backend that answers queries about this kind of memory.
    @Override
    public Optional<Map<String, String>> query(MemoryRange range) {
        checkOpen();
        for (var slot : slots.all()) {
            if (slot.capabilities().has(BackendCapabilities.Feature.QUERY)
                    && slot.takes(range.kind())) {
                return slot.call("query", backend -> backend.query(range));
            }
        }
        throw new KvFerryException(
                ErrorCode.UNSUPPORTED,
                "no backend of agent " + self() + " answers queries about " + range.kind());
    }

    /// Of each backend, under its name: what the agent measured, and what the backend says itself.
    @Override
    public Stats drainStats() {
        checkOpen();
        var all = List.copyOf(slots.all());
        var figures = new PartFigures(all.stream().map(OpenBackend::name).toList());
        for (int i = 0; i < all.size(); i++) {
            figures.add(i, all.get(i).figures().drain());
            figures.add(i, all.get(i).call("drainStats", TransferBackend::drainStats));
        }
        return figures.drain();
    }

    /// With [Loops#CALLER], makes CONFINED backends progress; only on the thread that opened the
    /// agent.
    @Override
    public int poll() {
        int done = 0;
        if (options.loops() == Loops.CALLER && !closed.get()) {
            for (var slot : slots.all()) {
                done += slot.poll();
            }
        }
        return done;
    }

    private void checkOpen() {
        if (closed.get()) {
            throw closedError();
        }
    }

    private KvFerryException closedError() {
        return new KvFerryException(ErrorCode.CLOSED, "agent " + self() + " is closed");
    }

    /// Closes the backends in the reverse order of their opening: each fails what is in flight with
    /// CLOSED, waits until it is quiesced and frees its registrations. Then the loops end.
    @Override
    public void close() {
        closed.set(true);
        RuntimeException first = null;
        for (var slot : List.copyOf(slots.all()).reversed()) {
            try {
                slot.close();
            } catch (RuntimeException e) { // every backend must get its turn
                if (first == null) {
                    first = e;
                } else {
                    first.addSuppressed(e);
                }
            }
        }
        if (first != null) {
            throw first;
        }
    }
}
