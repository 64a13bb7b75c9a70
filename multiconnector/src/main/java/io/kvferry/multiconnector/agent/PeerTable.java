// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.TransferBackend.PeerState;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;

/// The peers of an agent, one incarnation each. Backends report states from their own threads, even
/// while the agent is calling them, so no method here blocks. The agent's sink is notified when the
/// best state of a peer changes.
///
/// Threading: any thread.
final class PeerTable {
    /// An agent's knowledge of a peer in one life. Replaced, never changed.
    ///
    /// @param sections what each backend was loaded with, to be restored when a later load fails
    ///   half-way
    /// @param states every backend that both have
    record Entry(PeerId id, Map<String, byte[]> sections, Map<String, PeerState> states) {
        private Entry with(String backend, PeerState state) {
            var changed = new HashMap<>(states);
            changed.put(backend, state);
            return new Entry(id, sections, changed);
        }

        /// The best state that any backend is in with it.
        PeerState state() {
            return best(states.values());
        }
    }

    /// From best to worst.
    private static final Logger LOG = LoggerFactory.getLogger(PeerTable.class);

    private static final List<PeerState> ORDER =
            List.of(
                    PeerState.READY,
                    PeerState.CONNECTING,
                    PeerState.KNOWN,
                    PeerState.SUSPECT,
                    PeerState.LOST);

    private final Map<String, Entry> peers = new ConcurrentHashMap<>();
    private final BackendContext.Sink sink;

    PeerTable(BackendContext.Sink sink) {
        this.sink = sink;
    }

    private static PeerState best(Collection<PeerState> states) {
        return states.isEmpty()
                ? PeerState.LOST
                : Collections.min(states, Comparator.comparingInt(ORDER::indexOf));
    }

    /// The sink for the reports of one backend.
    BackendContext.Sink sinkOf(String backend) {
        return new BackendContext.Sink() {
            @Override
            public void notified(PeerId from, byte[] notification) {
                sink.notified(from, notification);
            }

            @Override
            public void peerChanged(PeerId peer, PeerState state, String why) {
                changed(peer, backend, state, why);
            }
        };
    }

    Optional<Entry> find(String agent) {
        return Optional.ofNullable(peers.get(agent));
    }

    /// Whether exactly this life of the peer is the one that the table knows.
    boolean isCurrent(PeerId peer) {
        return find(peer.agent()).filter(entry -> entry.id().equals(peer)).isPresent();
    }

    Map<String, byte[]> sections(PeerId peer) {
        return find(peer.agent())
                .filter(entry -> entry.id().equals(peer))
                .map(Entry::sections)
                .orElse(Map.of());
    }

    /// The state of one backend with a peer; LOST when it has none.
    PeerState state(PeerId peer, String backend) {
        var entry = peers.get(peer.agent());
        return entry == null || !entry.id().equals(peer)
                ? PeerState.LOST
                : entry.states().getOrDefault(backend, PeerState.LOST);
    }

    /// Records a successful load on these backends. States reported during the load are kept,
    /// except terminal ones.
    void loaded(PeerId peer, Map<String, byte[]> sections) {
        peers.compute(
                peer.agent(),
                (_, old) -> {
                    var states = new HashMap<String, PeerState>();
                    var all = new HashMap<String, byte[]>();
                    if (old != null && old.id().equals(peer)) {
                        all.putAll(old.sections());
                        states.putAll(old.states());
                    }
                    all.putAll(sections);
                    sections.keySet()
                            .forEach(backend ->
                                    states.merge(
                                            backend,
                                            PeerState.KNOWN,
                                            (known, fresh) ->
                                                    known == PeerState.LOST ? fresh : known));
                    return new Entry(peer, Map.copyOf(all), states);
                });
    }

    /// A backend's view changed; of another life than the known one it is news of the past.
    void changed(PeerId peer, String backend, PeerState state, String why) {
        var before = new PeerState[1];
        var after =
                peers.computeIfPresent(
                        peer.agent(),
                        (_, entry) -> {
                            before[0] = entry.state();
                            return entry.id().equals(peer) ? entry.with(backend, state) : entry;
                        });
        if (after != null && after.id().equals(peer) && after.state() != before[0]) {
            if (after.state() == PeerState.SUSPECT || after.state() == PeerState.LOST) {
                LOG.warn("peer {} is {}: {}: {}", peer, after.state(), backend, why);
            }
            sink.peerChanged(peer, after.state(), backend + ": " + why);
        }
    }

    void remove(PeerId peer) {
        var entry = peers.get(peer.agent());
        if (entry != null && entry.id().equals(peer)) {
            peers.remove(peer.agent(), entry);
        }
    }
}
