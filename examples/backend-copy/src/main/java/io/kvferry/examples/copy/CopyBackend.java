// SPDX-License-Identifier: Apache-2.0
package io.kvferry.examples.copy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Prepared;
import io.kvferry.spi.transfer.Registration;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferRequest;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Queue;

/// Copies one chunk of one transfer per [#poll].
///
/// Threading: CONFINED: the agent calls every method on one thread, so nothing here needs a lock.
/// Only [CopyTransfer] is seen by others.
final class CopyBackend implements TransferBackend {
    private static final long CHUNK = 1 << 20;

    private final BackendContext context;
    private final BackendCapabilities capabilities;
    private final long queueLimit;
    private final List<Region> regions = new ArrayList<>();
    private final Queue<CopyTransfer> queue = new ArrayDeque<>();
    private boolean closed;

    CopyBackend(BackendContext context, BackendCapabilities capabilities) {
        this.context = context;
        this.capabilities = capabilities;
        this.queueLimit = context.options().integer("queue");
    }

    /// What [#prepare] hands out. It holds nothing, so closing it frees nothing.
    private record Ranges(CopyBackend owner, DescriptorList descriptors) implements Prepared {
        @Override
        public Optional<PeerId> peer() {
            return Optional.empty();
        }

        @Override
        public void close() {}
    }

    /// Registered memory. All descriptors name device 0 and count from its native address.
    private final class Region implements Registration {
        private final MemoryRange.Host memory;

        Region(MemoryRange.Host memory) {
            this.memory = memory;
        }

        @Override
        public MemoryRange memory() {
            return memory;
        }

        @Override
        public long device() {
            return 0;
        }

        @Override
        public long address() {
            return memory.segment().address();
        }

        boolean covers(long at, long length) {
            return at >= address()
                    && length <= memory.length()
                    && at - address() <= memory.length() - length;
        }

        @Override
        public void close() {
            regions.remove(this);
        }
    }

    @Override
    public BackendCapabilities capabilities() {
        return capabilities;
    }

    @Override
    public Registration register(MemoryRange memory) {
        checkOpen();
        if (!(memory instanceof MemoryRange.Host host)) {
            throw new KvFerryException(
                    ErrorCode.UNSUPPORTED, "COPY moves host memory only, not " + memory.kind());
        }
        var region = new Region(host);
        regions.add(region);
        return region;
    }

    @Override
    public byte[] localMetadata() {
        checkOpen();
        return new byte[0]; // no REMOTE route: peers must not get an address of this agent
    }

    @Override
    public void loadPeer(PeerId peer, byte[] section) {
        checkOpen();
        throw new KvFerryException(ErrorCode.UNSUPPORTED, "COPY reaches no peers");
    }

    @Override
    public void dropPeer(PeerId peer) {
        checkOpen();
    }

    @Override
    public Prepared prepare(Optional<PeerId> peer, DescriptorList descriptors) {
        checkOpen();
        if (peer.isPresent()) {
            throw new KvFerryException(
                    ErrorCode.NOT_FOUND, "COPY reaches no peers, so none is known: " + peer.get());
        }
        for (int i = 0; i < descriptors.count(); i++) {
            if (descriptors.device(i) != 0
                    || find(descriptors.address(i), descriptors.length(i)).isEmpty()) {
                throw new KvFerryException(
                        ErrorCode.NOT_FOUND, "range " + i + " is in no registered region");
            }
        }
        return new Ranges(this, descriptors);
    }

    private Optional<Region> find(long at, long length) {
        return regions.stream().filter(region -> region.covers(at, length)).findFirst();
    }

    @Override
    public Transfer submit(TransferRequest request) {
        checkOpen();
        check(request);
        if (queue.size() >= queueLimit) {
            throw new KvFerryException(
                    ErrorCode.BACKPRESSURE, queueLimit + " transfers wait already (option queue)");
        }
        var transfer = new CopyTransfer(request);
        queue.add(transfer);
        return transfer;
    }

    /// Rejects an invalid request before any of it starts.
    private void check(TransferRequest request) {
        var near = request.local().descriptors();
        var far = request.remote().descriptors();
        if (!isOwn(request.local()) || !isOwn(request.remote())) {
            throw invalid("both sides must come from prepare() of this backend");
        }
        if (request.notification().isPresent()) {
            throw new KvFerryException(ErrorCode.UNSUPPORTED, "COPY has no notifications");
        }
        if (!near.pairsWith(far)) {
            throw invalid("the sides differ: " + near + " and " + far);
        }
        if (near.count() > capabilities.maxDescriptors()) {
            throw invalid(near + " is more than " + capabilities.maxDescriptors() + " ranges");
        }
    }

    private boolean isOwn(Prepared list) {
        return list instanceof Ranges ranges && ranges.owner == this;
    }

    private static KvFerryException invalid(String message) {
        return new KvFerryException(ErrorCode.INVALID_REQUEST, message);
    }

    /// Moves one chunk of the first transfer, or ends it.
    @Override
    public int poll() {
        checkOpen();
        var transfer = queue.peek();
        if (transfer == null) {
            return 0;
        }
        if (step(transfer)) {
            queue.remove();
        }
        return 1;
    }

    /// True when the transfer has ended.
    private boolean step(CopyTransfer transfer) {
        if (transfer.endedEarly()) {
            return true;
        }
        if (!transfer.isWhole()) {
            var from = find(transfer.source(), transfer.left());
            var to = find(transfer.target(), transfer.left());
            if (from.isEmpty() || to.isEmpty()) {
                transfer.fail(new Failure(ErrorCode.CLOSED, "a range is no longer registered"));
                return true;
            }
            transfer.copy(from.get().memory(), to.get().memory(), CHUNK);
        }
        return transfer.endIfWhole();
    }

    private void checkOpen() {
        if (closed) {
            throw new KvFerryException(
                    ErrorCode.CLOSED, "COPY of " + context.self() + " is closed");
        }
    }

    @Override
    public void close() {
        if (closed) {
            return;
        }
        closed = true;
        for (var transfer : queue) {
            transfer.fail(
                    new Failure(ErrorCode.CLOSED, "COPY of " + context.self() + " was closed"));
        }
        queue.clear();
        regions.clear();
    }
}
