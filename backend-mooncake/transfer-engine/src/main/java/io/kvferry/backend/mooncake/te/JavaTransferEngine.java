// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import io.kvferry.backend.mooncake.te.RemoteSegment.Buffer;
import io.kvferry.backend.mooncake.te.internal.Incarnation;
import io.kvferry.backend.mooncake.te.internal.PeerAuth;
import io.kvferry.backend.mooncake.te.internal.Ports;
import io.kvferry.backend.mooncake.te.internal.StopSteps;
import io.kvferry.backend.mooncake.te.internal.WireJson;
import io.kvferry.backend.mooncake.te.internal.handshake.HandshakeClient;
import io.kvferry.backend.mooncake.te.internal.handshake.HandshakeServer;
import io.kvferry.backend.mooncake.te.internal.memory.GateSets;
import io.kvferry.backend.mooncake.te.internal.memory.GrantTable;
import io.kvferry.backend.mooncake.te.internal.memory.GrantTable.Grant;
import io.kvferry.backend.mooncake.te.internal.memory.Holders;
import io.kvferry.backend.mooncake.te.internal.memory.Region;
import io.kvferry.backend.mooncake.te.internal.memory.RegionTable;
import io.kvferry.backend.mooncake.te.internal.metadata.Publisher;
import io.kvferry.backend.mooncake.te.internal.metadata.SegmentDirectory;
import io.kvferry.backend.mooncake.te.internal.metadata.SegmentDocument;
import io.kvferry.backend.mooncake.te.internal.metadata.SegmentDocument.Extension;
import io.kvferry.backend.mooncake.te.internal.samehost.SharedOwner;
import io.kvferry.backend.mooncake.te.internal.samehost.SharedPeer;
import io.kvferry.backend.mooncake.te.internal.tcp.DataServer;
import io.kvferry.backend.mooncake.te.internal.tcp.Watchdog;
import io.kvferry.backend.mooncake.te.internal.transfer.Notifier;
import io.kvferry.backend.mooncake.te.internal.transfer.Peer;
import io.kvferry.backend.mooncake.te.internal.transfer.PeerTable;
import io.kvferry.backend.mooncake.te.internal.transfer.Registrations;
import io.kvferry.backend.mooncake.te.internal.transfer.SubmitQueues;
import io.kvferry.backend.mooncake.te.internal.transfer.TransferContext;
import io.kvferry.backend.mooncake.te.internal.transfer.TransferTask;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.crossmemory.ProcessVm;
import io.kvferry.toolkit.net.Cancellation;
import io.kvferry.toolkit.recovery.OpeningParts;
import io.kvferry.toolkit.recovery.SharedClosing;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/// The transfer engine in pure Java, over TCP; wire-compatible with Mooncake's.
///
/// Threading: as [TransferEngine]; an interrupt ends with CANCELLED what its thread waits in. Own
/// threads, all daemons, all ended by [#close]: two acceptors, one per data connection, a watchdog,
/// a publisher with a metadata server, and helpers that come and go with the load.
public final class JavaTransferEngine implements TransferEngine {
    private static final Logger LOG = LoggerFactory.getLogger(JavaTransferEngine.class);
    private static final int MOST_HELPERS = 512;

    private final EngineConfig config;
    private final String incarnation = Incarnation.draw();
    private final RegionTable regions = new RegionTable();
    private final GrantTable grants = new GrantTable();
    private final Holders holders = new Holders();
    private final Optional<SharedOwner> shared;
    private final Ports ports;
    private final String segmentName;
    private final Watchdog watchdog;
    private final SegmentDirectory directory;
    private final Notifier notifier;
    private final PeerTable peers;
    private final ExecutorService helpers;
    private final SubmitQueues queues;
    private final TransferContext context;
    private final Publisher publisher;
    private final HandshakeServer handshakes;
    private final DataServer data;
    private final Registrations registrations;
    private volatile boolean closed;

    /// Ends the look-ups and notifications of callers of [#open] and [#send].
    private final Cancellation waits = new Cancellation();

    private final SharedClosing closing = new SharedClosing();
    private boolean stopped;

    /// @param parts gets all that is to be closed when the rest cannot be opened
    private JavaTransferEngine(EngineConfig config, Ports ports, OpeningParts parts) {
        this.config = config;
        this.ports = ports;
        this.shared =
                config.sharedMemory() && config.extension()
                        ? SharedOwner.create(
                                config.sharedMemoryDir(), incarnation, config.crossMemory())
                        : Optional.empty();
        shared.ifPresent(owner -> parts.add(owner, SharedOwner::close));
        shared.ifPresent(owner -> owner.memoryKey(memoryKey()));
        if (shared.isPresent() && config.crossMemory() && config.crossMemoryPtracer()) {
            ProcessVm.allowAnyPeer();
        }
        this.segmentName = config.p2p() ? ports.handshakeAddress().toString() : config.name();
        this.watchdog = parts.add(new Watchdog(segmentName), Watchdog::close);
        var client =
                new HandshakeClient(
                        config.connectTimeout(),
                        config.handshakeTimeout(),
                        config.handshakeMaxBytes(),
                        config.auth(PeerAuth.Kind.HANDSHAKE));
        this.directory =
                parts.add(
                        new SegmentDirectory(config, client, this::document),
                        SegmentDirectory::close);
        this.notifier =
                new Notifier(
                        directory,
                        client,
                        config.maxNotifications(),
                        config.maxNotificationBytes());
        this.peers = parts.add(new PeerTable(directory, config, watchdog), PeerTable::close);
        this.helpers =
                new ThreadPoolExecutor(
                        0,
                        MOST_HELPERS,
                        10,
                        TimeUnit.SECONDS,
                        new SynchronousQueue<>(),
                        Thread.ofPlatform()
                                .name("kvferry-te-io-" + segmentName + "-", 0)
                                .daemon()
                                .factory());
        this.queues =
                parts.add(
                        new SubmitQueues(helpers, config.lanesPerPeer(), config.queuePerPeer()),
                        SubmitQueues::close);
        watchdog.repeat(queues::endOverdue);
        this.context =
                new TransferContext(
                        config,
                        regions,
                        holders,
                        new GateSets(),
                        peers,
                        notifier,
                        helpers,
                        segmentName,
                        incarnation,
                        grants,
                        () -> closed);
        this.publisher =
                parts.add(
                        new Publisher(directory, segmentName, ports.handshakeAddress()),
                        Publisher::close);
        this.registrations =
                new Registrations(regions, holders, shared, publisher, config.drainTimeout());
        this.data =
                parts.add(
                        new DataServer(
                                ports.data(),
                                config,
                                watchdog,
                                holders,
                                regions,
                                grants,
                                Incarnation.shortForm(incarnation)),
                        DataServer::close);
        this.handshakes =
                parts.add(
                        new HandshakeServer(
                                ports.handshake(),
                                new Node(),
                                watchdog,
                                config.handshakeTimeout(),
                                config.handshakeMaxBytes(),
                                config.auth(PeerAuth.Kind.HANDSHAKE)),
                        HandshakeServer::close);
    }

    /// Binds the ports, announces the engine where a metadata server is configured, and returns it
    /// running.
    ///
    /// @throws KvFerryException [ErrorCode#IO] when no port can be bound or the metadata server
    ///   does not answer
    public static JavaTransferEngine start(EngineConfig config) {
        try (var parts = new OpeningParts()) {
            var ports = parts.add(Ports.bind(config), Ports::close);
            var engine = new JavaTransferEngine(config, ports, parts);
            engine.publisher.start();
            LOG.debug(
                    "transfer engine {} listens, data port {}",
                    engine.segmentName,
                    ports.dataPort());
            parts.keep(); // last: the caller has it then
            return engine;
        }
    }

    /// The answers of the handshake port.
    private final class Node implements HandshakeServer.Node {
        @Override
        public byte[] metadataReply() {
            return config.p2p() ? document() : WireJson.bytes(WireJson.parse("null", "nothing"));
        }

        @Override
        public boolean accept(Notification notification, String host) {
            return notifier.accept(notification, host);
        }
    }

    private byte[] document() {
        List<Buffer> buffers = new ArrayList<>();
        for (Region region : regions.all()) {
            buffers.add(new Buffer(region.address, region.bytes));
        }
        var extension =
                config.extension()
                        ? new Extension(Extension.VERSION, incarnation, shared.isPresent())
                        : Extension.NONE;
        return new SegmentDocument(
                        segmentName,
                        "tcp",
                        ports.dataPort(),
                        config.protocolVersion(),
                        buffers,
                        extension)
                .encode(LocalDateTime.now(), config.handshakeMaxBytes());
    }

    @Override
    public EngineInfo info() {
        return new EngineInfo(
                segmentName,
                config.host(),
                ports.handshakeAddress().port(),
                "java",
                "tcp",
                incarnation,
                config.extension());
    }

    @Override
    public RegisteredMemory register(MemorySegment memory, Access access) {
        requireOpen();
        if (access != Access.OPEN) {
            requireGrants();
        }
        return registrations.register(memory, access);
    }

    @Override
    public long memoryKey() {
        return config.extension() ? grants.memoryKey() : 0;
    }

    @Override
    public RegisteredMemory allocate(long bytes) {
        requireOpen();
        return registrations.allocate(bytes);
    }

    @Override
    public RegisteredMemory allocate(long bytes, Access access, Arena arena) {
        requireOpen();
        if (access != Access.OPEN) {
            requireGrants();
        }
        return registrations.allocate(bytes, access, arena);
    }

    @Override
    public Optional<MemorySegment> offer(long bytes, Arena arena) {
        requireOpen();
        return registrations.offer(bytes, arena);
    }

    @Override
    public RemoteSegment open(String name, Deadline deadline) {
        requireOpen();
        Peer peer = peers.find(name, deadline, waits);
        peer.shared().ifPresent(SharedPeer::mapAhead);
        SegmentDocument document = peer.document;
        return new RemoteSegment(
                name,
                peer.incarnation(),
                document.protocol(),
                document.dataVersion(),
                peer.shared().isPresent(),
                document.buffers());
    }

    @Override
    public <T> T submit(EngineRequest request, Function<? super EngineTransfer, T> follow) {
        var task = new TransferTask(request, context);
        T followed = follow.apply(task);
        queues.submit(request.segmentName(), task);
        return followed;
    }

    @Override
    public EngineOutcome transfer(EngineRequest request) {
        requireOpen();
        return new TransferTask(request, context).execute();
    }

    @Override
    public void send(String peer, Notification notification, Deadline deadline) {
        requireOpen();
        notifier.send(peer, notification, deadline, waits);
    }

    @Override
    public List<Notification> takeNotifications(int max) {
        return notifier.take(max);
    }

    @Override
    public List<Notification> awaitNotifications(int max, Deadline deadline) {
        return notifier.await(max, deadline);
    }

    @Override
    public WriteGrant grant(Extents extents, WriteGrant.Writers writers) {
        requireOpen();
        requireGrants();
        if (extents.isEmpty()) {
            throw new KvFerryException(ErrorCode.INVALID_REQUEST, "a grant for no memory");
        }
        for (int i = 0; i < extents.size(); i++) {
            long address = extents.address(i);
            long bytes = extents.bytes(i);
            if (regions.find(address, 1) == null || regions.find(address + bytes - 1, 1) == null) {
                throw new KvFerryException(
                        ErrorCode.INVALID_REQUEST,
                        "0x%x+%d does not start and end in registered regions"
                                .formatted(address, bytes));
            }
        }
        Grant grant = grants.open(extents, writers);
        boolean done = false;
        try {
            var opened = new OpenGrant(grant);
            if (shared.isPresent()) {
                opened.slot = shared.get().openGrant(grant.token(), extents);
            }
            done = true;
            return opened;
        } finally {
            if (!done) { // the caller did not get it and cannot close it
                withdraw(grant);
            }
        }
    }

    private void withdraw(Grant grant) {
        grants.forget(grant);
        holders.drain(grant.gate(), config.drainTimeout());
        grants.remove(grant); // what it refused until here, it knows
    }

    private void requireGrants() {
        if (!config.extension()) {
            throw new KvFerryException(
                    ErrorCode.UNSUPPORTED, "capabilities need the setting extension=true");
        }
    }

    /// A capability of this engine.
    private final class OpenGrant implements WriteGrant {
        private final Grant grant;
        private final SharedClosing closing = new SharedClosing();

        /// In the control page, -1 for none.
        private int slot = -1;

        OpenGrant(Grant grant) {
            this.grant = grant;
        }

        @Override
        public Received received(Extents wanted) {
            return grant.arrivals()
                    .orElseThrow(() -> new IllegalStateException("not a grant for any peer"))
                    .received(wanted);
        }

        @Override
        public long token() {
            return grant.token();
        }

        @Override
        public void close() {
            closing.run(this::end);
        }

        private void end() {
            withdraw(grant);
            if (slot >= 0) {
                closeShared();
            }
        }

        private void closeShared() {
            try {
                shared.orElseThrow().closeGrant(slot, grant.extents(), config.drainTimeout());
            } catch (IllegalStateException e) {
                if (!closed) { // after close the page is gone, and all its grants with it
                    throw e;
                }
            }
        }
    }

    @Override
    public Optional<String> trouble() {
        return handshakes.trouble().or(data::trouble);
    }

    @Override
    public long refusedWrites() {
        return data.refusedWrites();
    }

    private void requireOpen() {
        if (closed) {
            throw new KvFerryException(
                    ErrorCode.CLOSED, "transfer engine " + segmentName + " is closed");
        }
    }

    /// Stops intake, fails what is in flight, withdraws the published documents, unregisters,
    /// frees.
    @Override
    public void close() {
        closed = true;
        waits.cancel(ErrorCode.CLOSED);
        closing.run(this::end);
    }

    /// Peers on this host see the memory no more, also where this fails.
    private void end() {
        boolean quiet = false;
        try {
            if (!stopped) { // else the end failed for a caller before this one
                stop();
            }
            registrations.closeAll();
            quiet = true;
        } finally {
            shared.ifPresent(quiet ? SharedOwner::close : SharedOwner::retire);
        }
    }

    private void stop() {
        stopped =
                new StopSteps("transfer engine " + segmentName)
                        .run("queues", queues::close)
                        .run("publisher", publisher::close)
                        .run("handshake port", handshakes::close)
                        .run("notifications", notifier::close)
                        .run("data port", data::close)
                        .run("transfers", this::endTransfers)
                        .run("peers", peers::close)
                        .run("watchdog", watchdog::close)
                        .run("metadata", directory::close)
                        .isWhole();
        if (!stopped) {
            throw new KvFerryException(
                    ErrorCode.NO_MEMORY,
                    "no heap memory to stop transfer engine " + segmentName + "; close it again");
        }
    }

    private void endTransfers() {
        helpers.shutdown();
        do {
            holders.abortAll();
        } while (!ended(helpers));
    }

    private static boolean ended(ExecutorService threads) {
        try {
            return threads.awaitTermination(100, TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return true;
        }
    }
}
