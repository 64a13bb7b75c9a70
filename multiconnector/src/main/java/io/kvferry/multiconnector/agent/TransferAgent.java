// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.multiconnector.agent.TransferPlan.Candidate;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryKind;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.TransferOutcome;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;

/// Moves bytes between memory registered here and memory of peers, files or objects, by whichever
/// of its backends does it best. The package description shows the life cycle.
///
/// A transfer is given to the first backend of its plan ([#explain]); when that fails for a reason
/// that another try may mend, and the deadline allows it, the next one gets it after the first has
/// let go of the buffers.
///
/// Threading: any thread. With [AgentOptions.Loops#CALLER] the thread that opened the agent drives
/// CONFINED backends by calling [#poll], and has to close it.
///
/// Errors: broken preconditions throw; what happens to an accepted transfer is its
/// [TransferOutcome].
public final class TransferAgent implements AutoCloseable {
    private final AgentOptions options;
    private final Slots slots;
    private final PeerTable peers;
    private final Experience experience;
    private final Selector selector;
    private final MemoryTable memory;
    private final PeerExchange exchange;
    private final Inbox inbox;
    private final Set<RunningTransfer> running = ConcurrentHashMap.newKeySet();
    private final AtomicBoolean closed = new AtomicBoolean();

    private TransferAgent(
            AgentOptions options, EventSink events, Slots slots, PeerTable peers, Inbox inbox) {
        this.options = options;
        this.slots = slots;
        this.peers = peers;
        this.inbox = inbox;
        this.memory = new MemoryTable(slots);
        this.exchange = new PeerExchange(options.self(), slots, peers);
        this.experience = new Experience(options.self().agent(), events, peers);
        this.selector = new Selector(List.copyOf(slots.all()), peers, experience);
    }

    /// Opens an agent and its backends; when one cannot be opened, those before it are closed
    /// again.
    ///
    /// @param catalog where backends come from; outlives the agent
    /// @throws KvFerryException what the catalog, the options or the backend say
    public static TransferAgent open(
            AgentOptions options,
            PluginCatalog catalog,
            List<BackendConfig> backends,
            EventSink events) {
        if (backends.isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "agent " + options.self() + " needs at least one backend");
        }
        var peers = new PeerTable();
        var inbox = new Inbox(options.notifications(), peers);
        var opener = new BackendOpener(options, catalog, events, inbox);
        return new TransferAgent(options, events, opener.openAll(backends), peers, inbox);
    }

    public PeerId self() {
        return options.self();
    }

    /// The open backends and what they can do, in the order of their opening.
    public Map<String, BackendCapabilities> backends() {
        var all = new LinkedHashMap<String, BackendCapabilities>();
        slots.all().forEach(slot -> all.put(slot.name(), slot.capabilities()));
        return all;
    }

    /// Registers memory with every backend that takes its kind. A backend may refuse; then the
    /// others still serve, and the handle says who refused and why.
    ///
    /// @throws KvFerryException when no backend took it
    public MemoryHandle register(MemoryRange range) {
        checkOpen();
        return memory.register(range, Set.of());
    }

    /// Registers memory with exactly these backends, or with none of them.
    ///
    /// @throws KvFerryException NOT_FOUND for a backend that is not open here, else what the first
    ///   refusal said
    public MemoryHandle register(MemoryRange range, Set<String> backends) {
        checkOpen();
        return memory.register(range, backends);
    }

    /// What a peer's [#loadPeer] needs: this agent's identity, and how each backend is reached and
    /// what is registered with it now.
    public byte[] localMetadata() {
        checkOpen();
        return exchange.localMetadata().encode();
    }

    /// Learns of a peer, or of more memory of a known one, on all backends that both have, or on
    /// none.
    ///
    /// @throws KvFerryException CORRUPT, INCOMPATIBLE (also when there is no backend in common),
    ///   INVALID_REQUEST for this agent's own metadata, STALE_INCARNATION for an earlier life of a
    ///   known peer
    public PeerId loadPeer(byte[] metadata) {
        checkOpen();
        return exchange.load(PeerMetadata.decode(metadata));
    }

    /// Forgets a peer: what is in flight to it fails with PEER_LOST.
    ///
    /// @throws KvFerryException NOT_FOUND when it is not known
    public void dropPeer(PeerId peer) {
        checkOpen();
        exchange.drop(peer);
        experience.forget(peer.agent());
    }

    public Optional<PeerStatus> peer(String agent) {
        return peers.find(agent);
    }

    /// All known peers, by name.
    public List<PeerStatus> peers() {
        return peers.all();
    }

    /// Resolves descriptors on every backend that covers all of them.
    ///
    /// @param peer whose memory; empty for this agent's own, where descriptors name the device of a
    ///   [MemoryHandle]
    /// @throws KvFerryException NOT_FOUND when no backend covers them, with what each said;
    ///   STALE_INCARNATION for another life of the peer
    public PreparedList prepare(Optional<PeerId> peer, DescriptorList descriptors) {
        checkOpen();
        peer.ifPresent(exchange::checkCurrent);
        return memory.prepare(peer, descriptors);
    }

    /// How a transfer would go, without posting anything and before it exists.
    public TransferPlan explain(
            Operation operation,
            Optional<PeerId> peer,
            MemoryKind local,
            MemoryKind remote,
            int descriptors,
            long bytes) {
        checkOpen();
        return selector.plan(
                Selector.Question.of(operation, peer, local, remote, descriptors, bytes));
    }

    /// How this transfer would go now.
    public TransferPlan explain(TransferSpec spec) {
        checkOpen();
        check(spec);
        return selector.plan(Selector.Question.of(spec));
    }

    /// Starts a transfer. Never blocks.
    ///
    /// @throws KvFerryException INVALID_REQUEST on lists that do not fit or a notification without
    ///   a peer, UNSUPPORTED when no backend can or may do it (the message explains each),
    ///   STALE_INCARNATION, PEER_LOST, CLOSED
    public AgentTransfer submit(TransferSpec spec) {
        var plan = explain(spec);
        if (plan.usable().isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.UNSUPPORTED, "no backend can do this transfer:\n" + plan.text());
        }
        var transfer = new RunningTransfer(host, spec, plan);
        experience.decided(spec, plan);
        running.add(transfer);
        if (closed.get()) {
            running.remove(transfer);
            throw closedError();
        }
        transfer.next(new Failure(ErrorCode.UNSUPPORTED, "nothing was tried"));
        return transfer;
    }

    private void check(TransferSpec spec) {
        var local = spec.local();
        var remote = spec.remote();
        if (local.isClosed() || remote.isClosed()) {
            throw invalid("a prepared list is closed");
        }
        if (local.peer().isPresent()) {
            throw invalid(
                    "the local list is prepared for "
                            + local.peer().get()
                            + "; are the sides swapped?");
        }
        remote.peer().ifPresent(exchange::checkCurrent);
        if (spec.notification().isPresent() && remote.peer().isEmpty()) {
            throw invalid("a transfer within this agent has nobody to notify");
        }
        int count = local.descriptors().count();
        if (count != remote.descriptors().count()
                || local.descriptors().bytes() != remote.descriptors().bytes()) {
            throw invalid(
                    "the sides differ: " + local.descriptors() + " and " + remote.descriptors());
        }
    }

    private static KvFerryException invalid(String what) {
        return new KvFerryException(ErrorCode.INVALID_REQUEST, what);
    }

    private final RunningTransfer.Host host =
            new RunningTransfer.Host() {
                @Override
                public BackendSlot slot(String backend) {
                    return slots.get(backend);
                }

                @Override
                public void attempted(
                        RunningTransfer transfer,
                        Candidate candidate,
                        TransferOutcome outcome,
                        long nanos) {
                    experience.attempted(transfer, candidate, outcome, nanos);
                }

                @Override
                public void ended(RunningTransfer transfer) {
                    running.remove(transfer);
                }
            };

    /// Sends a notification alone, by the first backend (by priority, then name) that can and
    /// reaches the peer.
    ///
    /// @throws KvFerryException NOT_FOUND for an unknown peer, UNSUPPORTED when no common backend
    ///   has notifications, BACKPRESSURE, PEER_LOST
    public void notify(PeerId peer, byte[] bytes) {
        checkOpen();
        exchange.checkCurrent(peer);
        exchange.notifier(peer)
                .call(
                        "notify",
                        backend -> {
                            backend.notify(peer, bytes);
                            return true;
                        });
    }

    /// Notifications that arrived, oldest first.
    public List<Notification> drainNotifications(int most) {
        return inbox.drain(most);
    }

    /// Notifications that did not fit since the agent was opened.
    public long droppedNotifications() {
        return inbox.dropped();
    }

    /// Makes CONFINED backends progress; only with [AgentOptions.Loops#CALLER], on the thread that
    /// opened the agent.
    ///
    /// @return how much was done
    public int poll() {
        checkOpen();
        if (options.loops() != AgentOptions.Loops.CALLER) {
            throw invalid(
                    "this agent drives its backends itself; open it with Loops.CALLER to call poll()");
        }
        int done = 0;
        for (var slot : slots.all()) {
            done += slot.poll();
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

    /// Refuses new work, lets transfers in flight end (at most the drain limit), then closes the
    /// backends in the reverse order of their opening: each fails what is left with CLOSED, waits
    /// until it is quiesced and frees its registrations. Then the loops end. Idempotent.
    @Override
    public void close() {
        if (!closed.compareAndSet(false, true)) {
            return;
        }
        drain();
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

    private void drain() {
        var limit = Deadline.in(options.drainLimit());
        for (var transfer : List.copyOf(running)) {
            while (transfer.poll().isEmpty() && !limit.passed()) {
                if (options.loops() != AgentOptions.Loops.CALLER || pollAll() == 0) {
                    LockSupport.parkNanos(this, 100_000);
                }
            }
        }
    }

    private int pollAll() {
        return slots.all().stream().mapToInt(BackendSlot::poll).sum();
    }
}
