// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.EngineRequest.Operation;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.internal.memory.Slice;
import io.kvferry.backend.mooncake.te.internal.samehost.SameHostCopier;
import io.kvferry.backend.mooncake.te.internal.samehost.SharedPeer;
import io.kvferry.backend.mooncake.te.internal.samehost.SharedRegions;
import io.kvferry.backend.mooncake.te.internal.samehost.SharedRegions.Mapped;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;

import java.util.Optional;

/// One attempt to run a transfer without a socket, straight between the memory of two processes of
/// this host: through mappings where all of the peer's ranges lie in shared memory, else by cross
/// memory attach.
///
/// Threading: [#run] once; [#giveUp] from any thread.
final class SameHostTransfer implements SameHostCopier.Job {
    /// Below twice this a second thread costs more than it gains.
    private static final long SHARE_BYTES = 4 << 20;

    /// Shares per thread, so that none waits long for a slow one.
    private static final int SHARES_PER_THREAD = 4;

    private static final String MAPPED = "shm";
    private static final String ATTACHED = "cma";

    private final EngineRequest request;
    private final TransferContext context;
    private final SharedPeer peer;
    private final SliceRunner runner;
    private Mapped[] table = {};
    private int grant = -1;
    private volatile boolean refused;
    private volatile int failedRange = -1;
    private volatile boolean touched;

    SameHostTransfer(EngineRequest request, TransferContext context, SharedPeer peer) {
        this.request = request;
        this.context = context;
        this.peer = peer;
        this.runner =
                new SliceRunner(
                        Slice.cut(request.ranges(), parts()), context.config().spinMicros());
    }

    private int parts() {
        long total = request.ranges().totalBytes();
        int threads = context.config().mostSlices();
        return total < 2 * SHARE_BYTES || threads == 1
                ? 1
                : (int) Math.min(total / SHARE_BYTES, (long) threads * SHARES_PER_THREAD);
    }

    /// Copies all ranges.
    ///
    /// @return the path that carried them; empty when it cannot be done this way: when a range is
    ///   in no region that the peer lists, all marks are in use, or the kernel forbids it
    /// @throws KvFerryException what ended it early
    Optional<String> run() {
        int mark = peer.marks().enter();
        if (mark < 0) {
            return Optional.empty();
        }
        try {
            peer.marks().announce(mark);
            var way = peer.control().isOpen() ? way() : Optional.<String>empty();
            if (way.isEmpty()) {
                return way;
            }
            peer.use();
            boolean mapped = way.get().equals(MAPPED);
            var caller = Thread.currentThread();
            runner.run(
                    context.config().mostSlices(),
                    context.helpers(),
                    () -> work(mapped, Thread.currentThread() == caller ? mark : -1),
                    () -> runner.giveUp(ErrorCode.CANCELLED));
            return refused ? Optional.empty() : way;
        } finally {
            peer.marks().exit(mark);
        }
    }

    /// As over the socket, every range is checked before anything is copied.
    private Optional<String> way() {
        table = peer.regions().current();
        Ranges ranges = request.ranges();
        long token = request.capability();
        grant = token == 0 ? -1 : peer.control().findGrant(token);
        if (token != 0 && grant < 0) {
            // Its owner may keep it outside the page; the socket will tell.
            return Optional.empty();
        }
        boolean key = token == 0 && peer.regions().isKey(request.memoryKey());
        boolean mapped = true;
        for (int i = 0; i < ranges.size(); i++) {
            long address = ranges.remoteAddress(i);
            long bytes = ranges.bytes(i);
            if (bytes == 0) {
                continue;
            }
            Mapped region = SharedRegions.find(table, address, bytes);
            if (region == null || !region.permits(token, key, write())) {
                return Optional.empty(); // the socket will tell why
            }
            mapped &= region.memory() != null;
            if (grant >= 0 && !peer.control().grantCovers(grant, token, address, bytes)) {
                failedRange = i;
                throw SharedPeer.expired(address, bytes);
            }
        }
        if (mapped) {
            return Optional.of(MAPPED);
        }
        return peer.process().filter(process -> !process.isForbidden()).map(_ -> ATTACHED);
    }

    /// @param known mark of the thread that runs the transfer, -1 for a helper, which takes its own
    private void work(boolean mapped, int known) {
        int mark = known >= 0 ? known : peer.marks().enter();
        if (mark < 0) {
            return; // the others do what this thread would have
        }
        try {
            if (grant >= 0) {
                peer.marks().under(mark, grant);
            }
            var copier =
                    mapped
                            ? peer.copier(mark, context.regions())
                            : peer.copier(mark, peer.process().orElseThrow());
            for (int slice = runner.claim(); slice >= 0; slice = runner.claim()) {
                if (!copier.carry(this, mark, runner.slice(slice))) {
                    refused = true;
                    runner.stop();
                }
            }
        } finally {
            if (known < 0) {
                peer.marks().exit(mark);
            }
        }
    }

    void giveUp(ErrorCode reason) {
        runner.giveUp(reason);
    }

    /// Whether nothing was copied, so the peer's memory is unchanged by this transfer.
    boolean untouched() {
        return !touched;
    }

    int failedRange() {
        return failedRange;
    }

    @Override
    public boolean write() {
        return request.operation() == Operation.WRITE;
    }

    @Override
    public Mapped[] table() {
        return table;
    }

    @Override
    public int grant() {
        return grant;
    }

    @Override
    public long token() {
        return request.capability();
    }

    @Override
    public void requireGoingOn() {
        ErrorCode reason = runner.givenUp();
        if (reason != null) {
            throw new KvFerryException(
                    reason, "the transfer with " + request.segmentName() + " was given up");
        }
        if (request.deadline().passed()) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT,
                    "the deadline passed during a copy to " + request.segmentName());
        }
        if (peer.marks().isClosed()) {
            throw new KvFerryException(
                    ErrorCode.PEER_LOST, "peer " + request.segmentName() + " was lost");
        }
        @Nullable KvFerryException other = runner.failure();
        if (other != null) {
            throw other;
        }
    }

    @Override
    public void announce(int mark) {
        peer.marks().announce(mark);
    }

    @Override
    public void touched() {
        if (!touched) {
            touched = true;
        }
    }

    @Override
    public void failedAt(int range) {
        if (runner.failure() == null) {
            failedRange = range;
        }
    }
}
