// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferBackend.PeerState;

import org.jspecify.annotations.Nullable;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.locks.ReentrantLock;

/// Metadata of this agent and of its peers, on all backends at once: a peer's blob is loaded by
/// every backend that both have, or by none.
///
/// Threading: any thread; loads one at a time.
final class PeerExchange {
    /// Held while backends load metadata, which does not wait for the network. Backend callbacks
    /// never acquire it.
    private final ReentrantLock loading = new ReentrantLock();

    private final PeerId self;
    private final OpenBackends slots;
    private final PeerTable peers;

    PeerExchange(PeerId self, OpenBackends slots, PeerTable peers) {
        this.self = self;
        this.slots = slots;
        this.peers = peers;
    }

    /// Empty when no backend reaches peers.
    byte[] localMetadata() {
        var sections = new TreeMap<String, byte[]>();
        for (var slot : slots.all()) {
            if (slot.reachesPeers()) {
                sections.put(
                        slot.name(),
                        slot.call("localMetadata", backend -> backend.localMetadata()));
            }
        }
        return sections.isEmpty() ? new byte[0] : MetadataSections.encode(sections);
    }

    void load(PeerId peer, byte[] metadata) {
        var sections = MetadataSections.decode(metadata);
        if (peer.agent().equals(self.agent())) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    "metadata of "
                            + peer
                            + " is this agent's own, or of another agent of the same name; agent names must differ");
        }
        var common = new LinkedHashMap<String, byte[]>();
        sections.forEach((name, section) -> {
            if (slots.has(name) && slots.get(name).reachesPeers()) {
                common.put(name, section);
            }
        });
        if (common.isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "no backend in common with "
                            + peer
                            + ": it has "
                            + sections.keySet()
                            + ", this agent "
                            + slots.names());
        }
        loading.lock();
        try {
            loadOnAll(peer, common);
        } finally {
            loading.unlock();
        }
    }

    private void loadOnAll(PeerId peer, Map<String, byte[]> sections) {
        peers.find(peer.agent())
                .map(PeerTable.Entry::id)
                .filter(known -> known.incarnation() > peer.incarnation())
                .ifPresent(known -> {
                    throw new KvFerryException(
                            ErrorCode.STALE_INCARNATION,
                            peer + " has started anew as " + known + "; ask it for its metadata");
                });
        var before = peers.sections(peer);
        var loaded = new LinkedHashMap<String, byte[]>();
        try {
            sections.forEach((name, section) -> {
                slots.get(name)
                        .make(
                                "loadPeer",
                                backend -> {
                                    backend.loadPeer(peer, section);
                                    return backend;
                                },
                                backend -> restore(backend, peer, before.get(name)));
                loaded.put(name, section);
            });
        } catch (RuntimeException e) {
            undo(peer, loaded, before, e);
            throw e;
        }
        peers.find(peer.agent())
                .map(PeerTable.Entry::id)
                .filter(known -> !known.equals(peer))
                .ifPresent(this::dropEverywhere);
        peers.loaded(peer, loaded);
    }

    /// Rolls back a failed load: each backend that had loaded the new metadata gets its previous
    /// metadata for the peer again, or drops the peer if it had none. Previous metadata is restored
    /// without dropping the peer first, because that would end running transfers.
    private void undo(
            PeerId peer,
            Map<String, byte[]> loaded,
            Map<String, byte[]> before,
            RuntimeException cause) {
        for (var name : loaded.keySet()) {
            try {
                slots.get(name)
                        .call(
                                "dropPeer",
                                backend -> {
                                    restore(backend, peer, before.get(name));
                                    return true;
                                });
            } catch (RuntimeException e) {
                cause.addSuppressed(e);
                peers.changed(
                        peer,
                        name,
                        PeerState.LOST,
                        "its metadata could not be restored: " + e.getMessage());
            }
        }
    }

    private static void restore(TransferBackend backend, PeerId peer, byte @Nullable [] section) {
        if (section == null) {
            backend.dropPeer(peer);
        } else {
            backend.loadPeer(peer, section);
        }
    }

    void drop(PeerId peer) {
        loading.lock();
        try {
            if (peers.isCurrent(peer)) {
                dropEverywhere(peer);
                peers.remove(peer);
            }
        } finally {
            loading.unlock();
        }
    }

    private void dropEverywhere(PeerId peer) {
        for (var slot : slots.all()) {
            if (slot.reachesPeers()) {
                slot.call(
                        "dropPeer",
                        backend -> {
                            backend.dropPeer(peer);
                            return true;
                        });
            }
        }
    }

    void checkCurrent(PeerId peer) {
        if (peers.isCurrent(peer)) {
            return;
        }
        var known = peers.find(peer.agent()).map(PeerTable.Entry::id);
        if (known.isPresent()) {
            throw new KvFerryException(
                    ErrorCode.STALE_INCARNATION,
                    peer + " is another life of " + known.get() + ", which is the one known here");
        }
        throw unknown(peer);
    }

    private static KvFerryException unknown(PeerId peer) {
        return new KvFerryException(
                ErrorCode.NOT_FOUND, peer + " is not known here; load its metadata first");
    }

    /// Sends the notification through the first backend that accepts it. A backend that throws is
    /// assumed to have sent nothing.
    void notify(PeerId peer, byte[] notification) {
        checkCurrent(peer);
        var failure =
                new KvFerryException(
                        ErrorCode.UNSUPPORTED,
                        "no backend that reaches "
                                + peer
                                + " has notifications; open: "
                                + slots.names());
        for (var slot : slots.all()) { // best first
            if (slot.capabilities().has(BackendCapabilities.Feature.NOTIFY)
                    && peers.state(peer, slot.name()) != PeerState.LOST) {
                try {
                    slot.make(
                            "notify",
                            backend -> {
                                backend.notify(peer, notification);
                                return true;
                            },
                            _ -> {});
                    return;
                } catch (KvFerryException e) {
                    failure = e;
                }
            }
        }
        throw failure;
    }
}
