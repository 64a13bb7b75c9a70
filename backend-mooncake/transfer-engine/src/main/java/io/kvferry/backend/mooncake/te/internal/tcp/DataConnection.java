// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import io.kvferry.backend.mooncake.te.internal.PeerAuth;
import io.kvferry.backend.mooncake.te.internal.memory.GateSet;
import io.kvferry.backend.mooncake.te.internal.memory.GrantTable;
import io.kvferry.backend.mooncake.te.internal.memory.GrantTable.Grant;
import io.kvferry.backend.mooncake.te.internal.memory.Holders;
import io.kvferry.backend.mooncake.te.internal.memory.Region;
import io.kvferry.backend.mooncake.te.internal.memory.RegionTable;
import io.kvferry.backend.mooncake.te.internal.memory.TransferFences;
import io.kvferry.backend.mooncake.te.internal.memory.UnnamedAccess;
import io.kvferry.backend.mooncake.te.internal.memory.UseGate;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/// Serves one accepted data connection: any mix of version 1, version 2 and batch requests, until
/// the peer hangs up.
///
/// Every range is checked against one registered region before a byte of it moves, and replies to
/// requests that arrived together leave together.
///
/// Threading: [#run] in a thread of its own; the rest from any.
final class DataConnection implements Runnable, Holders.Holder {
    private static final Logger LOG = LoggerFactory.getLogger(DataConnection.class);

    /// How long a refused peer may take to read the refusal before its connection is reset.
    private static final long LAST_WORD_NANOS = TimeUnit.MILLISECONDS.toNanos(500);

    /// READs behind each other whose bytes leave together, and whose regions are held meanwhile.
    private static final int LONGEST_CHAIN = 16;

    /// For a peer to prove that it knows the fleet's secret.
    private static final Duration AUTH_LIMIT = Duration.ofSeconds(10);

    private final Optional<PeerAuth> auth;
    private final DataServer server;
    private final Wire wire;
    private final RegionTable regions;
    private final BatchServer batches;
    private final boolean extension;
    private final UnnamedAccess unnamed;
    private final GateSet held;
    private final RefusedWrites refused;
    private final String host;

    /// READs that were served since the gates of their regions were last let go.
    private int chained;

    private volatile long idleSince = System.nanoTime();

    /// Whether a part of a header has arrived and the rest is awaited.
    private volatile boolean begun;

    /// @param host where the peer is
    DataConnection(
            DataServer server,
            String host,
            Wire wire,
            RegionTable regions,
            GrantTable grants,
            TransferFences fences,
            RefusedWrites refused,
            long incarnation,
            boolean extension,
            Optional<PeerAuth> auth) {
        this.auth = auth;
        this.server = server;
        this.host = host;
        this.refused = refused;
        this.wire = wire;
        this.regions = regions;
        this.held = new GateSet();
        this.unnamed = new UnnamedAccess(grants, held);
        this.batches = new BatchServer(regions, grants, unnamed, fences, this::refuse, incarnation);
        this.extension = extension;
    }

    @Override
    public void run() {
        try {
            boolean more = authenticate();
            while (more) {
                more = awaitRequest() && serve();
                if (!wire.out.hasPieces()) {
                    letGo();
                }
                batches.done();
            }
        } catch (IOException | KvFerryException e) {
            LOG.debug("data connection dropped: {}", e.toString());
        } catch (RuntimeException | Error e) { // ends this connection only
            LOG.warn("data connection failed", e);
        } finally {
            end();
        }
    }

    private boolean authenticate() throws IOException {
        if (auth.isPresent()) {
            wire.begin(Deadline.in(AUTH_LIMIT));
            auth.get().accept(wire.bytes());
        }
        return true;
    }

    /// Nothing of it is left.
    void end() {
        held.exitAll();
        batches.done();
        server.ended(this);
        server.left(this);
        wire.close();
    }

    /// Whether it is serving a message of this token.
    boolean serves(long token) {
        return batches.token() == token;
    }

    private boolean awaitRequest() throws IOException {
        if (!wire.in.buffered(DataFrames.HEADER)) {
            wire.out.flush();
            if (!wire.in.buffered(1)) {
                wire.rest();
                idleSince = System.nanoTime();
                if (!wire.in.await()) {
                    return false;
                }
            }
            if (!wire.in.buffered(DataFrames.HEADER)) {
                awaitHeader();
            }
            idleSince = 0;
        }
        wire.begin();
        return true;
    }

    /// Reads the rest of a header. Until it is complete the connection counts as idle and may be
    /// closed to make room, since no request is lost.
    private void awaitHeader() throws IOException {
        if (idleSince == 0) {
            idleSince = System.nanoTime();
        }
        begun = true;
        wire.beginTogether();
        var _ = wire.in.need(DataFrames.HEADER);
        begun = false;
    }

    private boolean serve() throws IOException {
        ByteBuffer header = wire.in.need(DataFrames.HEADER);
        long size = header.getLong();
        long address = header.getLong();
        int opcode = header.get() & 0xFF;
        header.position(header.position() + 7);
        boolean write = (opcode & ~DataFrames.V2) == DataFrames.WRITE;
        if (write || (opcode & ~DataFrames.V2) != DataFrames.READ) {
            wire.out.sendPieces(); // what READs before it asked for
        }
        if (extension && (opcode == DataFrames.BATCH_READ || opcode == DataFrames.BATCH_WRITE)) {
            if (batches.serve(wire, held, opcode == DataFrames.BATCH_WRITE, size, address)) {
                return true;
            }
            return hangUp();
        }
        if (extension && opcode == DataFrames.FENCE) {
            batches.fence(wire, host, token -> server.end(token, this));
            return true;
        }
        if (wire.out.hasPieces() && (++chained >= LONGEST_CHAIN || held.anyClosed())) {
            // A peer may send requests without a pause, but unregistering memory must wait only for
            // requests in progress.
            wire.out.sendPieces();
            letGo();
        }
        boolean receipt = (opcode & DataFrames.V2) != 0;
        Region region = regions.find(address, size);
        if (region == null
                || !held.enter(region.gate)
                || !unnamed.permits(region, address, size, write)) {
            if (write) {
                unnamed.refused(address, size, receipt);
                refuse(address, size);
            } else {
                LOG.debug("refused to send {} bytes at 0x{}", size, Long.toHexString(address));
            }
            wire.out.sendPieces();
            if (receipt) {
                DataFrames.status(wire.out.room(DataFrames.STATUS), DataFrames.STATUS_REJECTED);
                return hangUp();
            }
            return false;
        }
        if (write) {
            receive(region, address, size, receipt);
            if (receipt) {
                DataFrames.status(wire.out.room(DataFrames.STATUS), DataFrames.STATUS_OK);
            }
        } else {
            if (receipt) {
                DataFrames.status(wire.out.room(DataFrames.STATUS), DataFrames.STATUS_OK);
            }
            wire.out.send(region, address, size, null);
            if (!wire.in.buffered(DataFrames.HEADER)) {
                wire.out.sendPieces(); // before a wait for the next request, while the region is
                // held
            }
        }
        return true;
    }

    private void refuse(long address, long bytes) {
        refused.add(host, address, bytes);
    }

    private void receive(Region region, long address, long size, boolean receipt)
            throws IOException {
        Grant grant = unnamed.grant();
        boolean whole = false;
        try {
            wire.in.receive(region, address, size, null);
            whole = true;
        } finally { // while the gate of the grant is held
            if (grant != null && whole) {
                grant.arrived(address, size, receipt);
            } else if (grant != null) {
                grant.torn();
            }
        }
    }

    private void letGo() {
        held.exitAll();
        chained = 0;
    }

    private boolean hangUp() throws IOException {
        held.exitAll();
        wire.hangUp(LAST_WORD_NANOS);
        return false;
    }

    /// When it became idle, or 0 while a request is served.
    long idleSince() {
        return idleSince;
    }

    /// Whether it has sent the beginning of a header and nothing more.
    boolean hasBegun() {
        return begun;
    }

    /// Where the peer is.
    String host() {
        return host;
    }

    @Override
    public boolean holds(UseGate gate) {
        return held.holds(gate);
    }

    @Override
    public void abort() {
        wire.abort();
    }
}
