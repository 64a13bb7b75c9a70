// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.plane;

import io.kvferry.backend.mooncake.te.EngineInfo;
import io.kvferry.backend.mooncake.te.Extents;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryKind;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.ProvidedMemory;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.transfer.BackendCapabilities.Route;
import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Prepared;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferBackend.PeerState;
import io.kvferry.spi.transfer.TransferBackends.Choice;
import io.kvferry.spi.transfer.TransferBackends.Ranking;
import io.kvferry.spi.transfer.TransferRequest;
import io.kvferry.toolkit.bounded.LoopReport;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.locks.ReentrantLock;
import java.util.stream.Collectors;

/// Transfer backends of the host in place of the connector's own engine. A decoder reads what a
/// prefiller holds: so the end of a load is in the hands of whoever owns the blocks that are
/// filled, whatever the backend, by [Transfer#cancel] and [Transfer#quiesced].
public final class HostBackends implements DataPlane {
    private static final Logger LOG = LoggerFactory.getLogger(HostBackends.class);

    /// Prefillers that are known at a time.
    private static final int MOST_SOURCES = 1024;

    private final TransferBackend backend;
    private final PeerId self;
    private final EngineInfo info;
    private final ReentrantLock loading = new ReentrantLock();

    /// By agent, those used last at the end: what was loaded of a prefiller.
    private final Map<String, Loaded> sources = new LinkedHashMap<>(16, 0.75f, true);

    private record Loaded(PeerId peer, byte[] metadata) {}

    private HostBackends(TransferBackend backend, PeerId self, String host, String names) {
        this.backend = backend;
        this.self = self;
        this.info = new EngineInfo(self.toString(), host, 0, "transfer backends", names, "", false);
    }

    /// Opens the backends.
    ///
    /// @param choices in order of preference
    /// @param self the name by which peers know this worker
    /// @param address the host that this worker names to peers
    /// @throws KvFerryException what [io.kvferry.spi.transfer.TransferBackends#open] says, or
    ///   [ErrorCode#UNSUPPORTED] when none of them reads the host memory of another agent
    public static HostBackends open(
            HostServices host, List<Choice> choices, PeerId self, String address) {
        var names = choices.stream().map(Choice::name).collect(Collectors.joining(","));
        var backend = backends(host, choices, self);
        var reading =
                new Route(Operation.READ, MemoryKind.HOST, MemoryKind.HOST, Route.Scope.REMOTE);
        if (!backend.capabilities().routes().contains(reading)) {
            backend.close();
            throw new KvFerryException(
                    ErrorCode.UNSUPPORTED,
                    "transfer_backends: none of " + names + " reads the host memory of a peer");
        }
        return new HostBackends(backend, self, address, names);
    }

    /// What goes wrong is said of the option, which the host does not know.
    private static TransferBackend backends(HostServices host, List<Choice> choices, PeerId self) {
        try {
            return host.transfers().open(self, choices, Ranking.LISTED, new Listener(self));
        } catch (KvFerryException e) {
            throw new KvFerryException(e.code(), "transfer_backends: " + e.getMessage(), e);
        }
    }

    /// Notifications are not used; what becomes of a peer shows in the outcome of each read.
    private record Listener(PeerId self) implements BackendContext.Sink {
        @Override
        public void notified(PeerId from, byte[] notification) {
            LOG.debug("{}: a notification of {} is not for this connector", self, from);
        }

        @Override
        public void peerChanged(PeerId peer, PeerState state, String why) {
            LOG.debug("{}: peer {} is {}: {}", self, peer, state, why);
        }
    }

    public PeerId self() {
        return self;
    }

    /// The metadata that a decoder needs to read from here.
    public byte[] metadata() {
        return backend.localMetadata();
    }

    @Override
    public EngineInfo info() {
        return info;
    }

    @Override
    public Optional<ProvidedMemory> provideMemory(long bytes) {
        return backend.provideMemory(bytes);
    }

    @Override
    public Registered register(MemorySegment piece) {
        return backend.register(new MemoryRange.Host(piece))::close;
    }

    /// Opens the window of a load.
    ///
    /// @param into the only addresses that reads of this load may fill
    public ReadWindow window(Extents into) {
        return new ReadWindow(this, into);
    }

    /// @throws KvFerryException as [TransferBackend#loadPeer], [TransferBackend#prepare] and
    ///   [TransferBackend#submit]
    Transfer read(PeerId source, byte[] metadata, Ranges ranges, Deadline deadline, String tag) {
        load(source, metadata);
        var here = DescriptorList.builder(MemoryKind.HOST);
        var there = DescriptorList.builder(MemoryKind.HOST);
        for (int i = 0; i < ranges.size(); i++) {
            here.add(0, ranges.localAddress(i), ranges.bytes(i));
            there.add(0, ranges.remoteAddress(i), ranges.bytes(i));
        }
        var local = backend.prepare(Optional.empty(), here.build());
        try {
            var remote = backend.prepare(Optional.of(source), there.build());
            try {
                return backend.submit(
                        new TransferRequest(
                                Operation.READ, local, remote, Optional.empty(), deadline, tag));
            } finally {
                end(remote);
            }
        } finally {
            end(local);
        }
    }

    /// Closes the list and only logs failures, since the read that has started must still be
    /// reported.
    private static void end(Prepared list) {
        try {
            list.close();
        } catch (RuntimeException | Error e) {
            LoopReport.WARN.log(LOG, "a list of descriptors is not closed", e);
        }
    }

    private void load(PeerId source, byte[] metadata) {
        var surplus = new ArrayList<PeerId>();
        loading.lock();
        try {
            var known = sources.get(source.agent());
            if (known != null
                    && known.peer().equals(source)
                    && Arrays.equals(known.metadata(), metadata)) {
                return;
            }
        } finally {
            loading.unlock();
        }
        backend.loadPeer(source, metadata);
        loading.lock();
        try {
            sources.put(source.agent(), new Loaded(source, metadata));
            var oldest = sources.values().iterator();
            while (sources.size() > MOST_SOURCES) {
                surplus.add(oldest.next().peer());
                oldest.remove();
            }
        } finally {
            loading.unlock();
        }
        surplus.forEach(backend::dropPeer);
    }

    @Override
    public Stats drainStats() {
        return backend.drainStats();
    }

    @Override
    public void close() {
        backend.close();
    }
}
