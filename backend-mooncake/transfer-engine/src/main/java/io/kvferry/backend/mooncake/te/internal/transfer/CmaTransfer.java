// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.TransferRequest;
import io.kvferry.backend.mooncake.te.TransferRequest.Operation;
import io.kvferry.backend.mooncake.te.internal.memory.Share;
import io.kvferry.backend.mooncake.te.internal.samehost.CmaCopier;
import io.kvferry.backend.mooncake.te.internal.samehost.PeerProcess;
import io.kvferry.backend.mooncake.te.internal.samehost.SharedPeer;
import io.kvferry.backend.mooncake.te.internal.samehost.SharedRegions;
import io.kvferry.backend.mooncake.te.internal.samehost.SharedRegions.Mapped;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;

import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/// One attempt to run a transfer by cross memory attach, straight between the memory of two
/// processes of this host: cut into shares that the calling thread and, for a large one, helpers
/// take in turn.
///
/// Threading: [#run] once; [#giveUp] from any thread.
final class CmaTransfer implements CmaCopier.Job {
    /// Below twice this a second thread costs more than it gains.
    private static final long SHARE_BYTES = 4 << 20;

    /// Shares per thread, so that none waits long for a slow one.
    private static final int SHARES_PER_THREAD = 4;

    private final TransferRequest request;
    private final TransferContext context;
    private final SharedPeer peer;
    private final PeerProcess process;
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition helperLeft = lock.newCondition();
    private Mapped[] table = {};
    private int grant = -1;
    private Share[] shares = {};
    private int nextShare;
    private int helpers;
    private boolean helpersLate;
    private volatile boolean refused;
    private volatile @Nullable KvFerryException failure;
    private volatile @Nullable ErrorCode givenUp;
    private volatile int failedRange = -1;
    private volatile boolean touched;

    CmaTransfer(
            TransferRequest request,
            TransferContext context,
            SharedPeer peer,
            PeerProcess process) {
        this.request = request;
        this.context = context;
        this.peer = peer;
        this.process = process;
    }

    /// Copies all ranges. False when it cannot be done this way: when a range is in no region that
    /// the peer lists, all lanes are in use, or the kernel forbids it.
    ///
    /// @throws KvFerryException what ended it early
    boolean run() {
        int lane = process.isForbidden() ? -1 : peer.lanes().enter();
        if (lane < 0) {
            return false;
        }
        try {
            peer.lanes().announce(lane);
            if (!peer.control().isOpen() || !isListed()) {
                return false;
            }
            cut();
            work(lane);
        } finally {
            peer.lanes().exit(lane);
            awaitHelpers();
        }
        KvFerryException ended = failure;
        if (ended != null) {
            throw ended;
        }
        return !refused;
    }

    /// As over the socket, nothing is copied before every range has been looked at.
    private boolean isListed() {
        table = peer.regions().current();
        Ranges ranges = request.ranges();
        long token = request.capability();
        grant = token == 0 ? -1 : peer.control().findGrant(token);
        if (token != 0 && grant < 0) {
            // Its owner may keep it outside the page; the socket will tell.
            return false;
        }
        for (int i = 0; i < ranges.size(); i++) {
            long address = ranges.remoteAddress(i);
            long bytes = ranges.bytes(i);
            if (bytes != 0 && !isPermitted(SharedRegions.find(table, address, bytes), token)) {
                return false; // the socket will tell why
            }
            if (bytes != 0
                    && grant >= 0
                    && !peer.control().grantCovers(grant, token, address, bytes)) {
                failedRange = i;
                throw SharedPeer.expired(address, bytes);
            }
        }
        return true;
    }

    private boolean isPermitted(@Nullable Mapped region, long token) {
        return region != null && region.permits(token, write());
    }

    private void cut() {
        long total = request.ranges().totalBytes();
        int threads = context.config().mostShares();
        int parts =
                total < 2 * SHARE_BYTES || threads == 1
                        ? 1
                        : (int) Math.min(total / SHARE_BYTES, (long) threads * SHARES_PER_THREAD);
        shares = Share.cut(request.ranges(), parts);
        for (int i = 1; i < Math.min(threads, parts); i++) {
            try {
                context.helpers().execute(this::help);
            } catch (RejectedExecutionException e) {
                return;
            }
        }
    }

    /// A helper that comes when the transfer is over finds nothing to do and touches nothing.
    private void help() {
        lock.lock();
        try {
            if (helpersLate) {
                return;
            }
            helpers++;
        } finally {
            lock.unlock();
        }
        int lane = -1;
        try {
            lane = peer.lanes().enter();
            if (lane >= 0) {
                work(lane);
            }
        } finally {
            if (lane >= 0) {
                peer.lanes().exit(lane);
            }
            lock.lock();
            try {
                helpers--;
                helperLeft.signal();
            } finally {
                lock.unlock();
            }
        }
    }

    /// Every helper is between two calls at most a few milliseconds apart, so this ends soon.
    private void awaitHelpers() {
        boolean interrupted = false;
        lock.lock();
        try {
            helpersLate = true;
            while (helpers > 0) {
                try {
                    helperLeft.await();
                } catch (InterruptedException e) {
                    interrupted = true;
                    givenUp = ErrorCode.CANCELLED;
                }
            }
        } finally {
            lock.unlock();
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private void work(int lane) {
        try {
            CmaCopier copier = peer.copier(lane, process);
            for (Share share = claim(); share != null; share = claim()) {
                if (!copier.carry(this, lane, share)) {
                    refused = true;
                }
            }
        } catch (KvFerryException e) {
            fail(e);
        } catch (RuntimeException | Error e) {
            // Errors too: a share that did not run must not pass for one that did.
            fail(new KvFerryException(ErrorCode.INTERNAL, "copy between processes: " + e, e));
        }
    }

    /// Null as well when the transfer has ended otherwise.
    private @Nullable Share claim() {
        lock.lock();
        try {
            return failure == null && !refused && nextShare < shares.length
                    ? shares[nextShare++]
                    : null;
        } finally {
            lock.unlock();
        }
    }

    private void fail(KvFerryException reason) {
        lock.lock();
        try {
            if (failure == null) {
                failure = reason;
            }
        } finally {
            lock.unlock();
        }
    }

    void giveUp(ErrorCode reason) {
        givenUp = reason;
    }

    /// Whether nothing was copied, so that the peer has seen nothing of this transfer.
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
        ErrorCode reason = givenUp;
        if (reason != null) {
            throw new KvFerryException(
                    reason, "the transfer with " + request.segmentName() + " was given up");
        }
        if (request.deadline().passed()) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT,
                    "the deadline passed during a copy to " + request.segmentName());
        }
        if (peer.lanes().isClosed()) {
            throw new KvFerryException(
                    ErrorCode.PEER_LOST, "peer " + request.segmentName() + " was lost");
        }
        KvFerryException other = failure;
        if (other != null) {
            throw other;
        }
    }

    @Override
    public void announce(int lane) {
        peer.lanes().announce(lane);
    }

    @Override
    public void touched() {
        touched = true;
    }

    @Override
    public void failedAt(int range) {
        if (failure == null) {
            failedRange = range;
        }
    }
}
