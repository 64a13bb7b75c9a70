// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.PeerState;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;

/// The peers of an agent, one incarnation each. Backends report states from their threads, also in
/// the middle of a call of ours, so nothing here waits for anything.
///
/// Threading: any thread.
final class PeerTable {
    /// One peer in one life. Replaced, never changed.
    ///
    /// @param sections what each backend was loaded with, to be restored when a later load fails
    ///   half-way
    private record Entry(
            PeerId id, Map<String, byte[]> sections, Map<String, PeerState> states, String why) {
        Entry with(String backend, PeerState state, String reason) {
            var changed = new HashMap<>(states);
            changed.put(backend, state);
            return new Entry(id, sections, changed, reason);
        }

        PeerStatus status() {
            return new PeerStatus(id, best(states.values()), states, why);
        }
    }

    /// From best to worst.
    private static final List<PeerState> ORDER =
            List.of(
                    PeerState.READY,
                    PeerState.CONNECTING,
                    PeerState.KNOWN,
                    PeerState.SUSPECT,
                    PeerState.LOST);

    private final Map<String, Entry> peers = new ConcurrentHashMap<>();

    private static PeerState best(Collection<PeerState> states) {
        return states.isEmpty()
                ? PeerState.LOST
                : Collections.min(states, Comparator.comparingInt(ORDER::indexOf));
    }

    Optional<PeerStatus> find(String agent) {
        return Optional.ofNullable(peers.get(agent)).map(Entry::status);
    }

    List<PeerStatus> all() {
        var all = new ArrayList<PeerStatus>();
        peers.values().forEach(entry -> all.add(entry.status()));
        all.sort(Comparator.comparing(status -> status.id().agent()));
        return all;
    }

    /// Whether exactly this life of the peer is the one that the table knows.
    boolean isCurrent(PeerId peer) {
        var entry = peers.get(peer.agent());
        return entry != null && entry.id().equals(peer);
    }

    Map<String, byte[]> sections(PeerId peer) {
        var entry = peers.get(peer.agent());
        return entry == null || !entry.id().equals(peer) ? Map.of() : entry.sections();
    }

    /// The state of one backend with a peer; LOST when it has none.
    PeerState state(PeerId peer, String backend) {
        var entry = peers.get(peer.agent());
        return entry == null || !entry.id().equals(peer)
                ? PeerState.LOST
                : entry.states().getOrDefault(backend, PeerState.LOST);
    }

    /// A load succeeded on these backends. States that they reported meanwhile are kept, unless
    /// they are of the end.
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
                    return new Entry(peer, Map.copyOf(all), states, "metadata loaded");
                });
    }

    /// A backend's view changed; of another life than the known one it is news of the past.
    void changed(PeerId peer, String backend, PeerState state, String why) {
        peers.computeIfPresent(
                peer.agent(),
                (_, entry) -> entry.id().equals(peer) ? entry.with(backend, state, why) : entry);
    }

    boolean remove(PeerId peer) {
        var entry = peers.get(peer.agent());
        return entry != null && entry.id().equals(peer) && peers.remove(peer.agent(), entry);
    }
}
