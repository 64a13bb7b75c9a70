// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedClient;
import io.kvferry.backend.mooncake.store.embedded.PutSessions.Started;
import io.kvferry.backend.mooncake.te.WriteGrant;
import io.kvferry.spi.Deadline;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;

/// What the owner knows of one user: whose objects it may touch, and its puts under way. Each batch
/// of puts has a grant for exactly the memory that it is to fill.
///
/// Threading: any thread. No lock is held while a grant is closed or the store is called.
final class OwnerSession {
    private static final Logger LOG = LoggerFactory.getLogger(OwnerSession.class);
    private static final int MOST_OPEN_PUTS = 256;
    private static final int[] NONE = {};

    /// Beyond this the oldest entry is dropped. Its batch may then begin after all, and is given up
    /// late.
    private static final int MOST_ABANDONED = 1024;

    final long id;
    final EmbeddedClient client;

    /// The batches under way, in any order, with gaps; the lock of this and of the flags below. An
    /// array, so that a batch comes and goes without memory of the heap.
    private final @Nullable OpenPuts[] open = new OpenPuts[MOST_OPEN_PUTS];

    /// Numbers of batches that their user gave up before they had begun, the oldest first.
    private final Set<Long> abandoned = new LinkedHashSet<>();

    /// No batch may begin: the session is being closed, which may fail.
    private boolean closing;

    /// No batch is in progress, and none can begin any more.
    private boolean over;

    private volatile boolean leaving;
    private volatile long lastHeard = System.nanoTime();

    /// A batch of puts under way. One thread at a time begins or ends it. It is known to its
    /// session before it takes memory and until that is given back, so that a failure in between,
    /// such as a heap that is full, loses nothing: what is left is given up later.
    static final class OpenPuts {
        private final long number;
        private final @Nullable Started[] started;
        private final int[] results;
        private final Deadline by;
        private final AtomicBoolean busy = new AtomicBoolean(true);
        private volatile @Nullable WriteGrant grant;

        private OpenPuts(long number, int keys, Deadline by) {
            this.number = number;
            this.started = new Started[keys];
            this.results = new int[keys];
            this.by = by;
        }

        /// Per key the put, to be filled in; null where it was refused.
        @Nullable Started[] started() {
            return started;
        }

        /// Per key 0 or a code, to be filled in.
        int[] results() {
            return results;
        }

        /// The grant that ends with the batch.
        void permit(WriteGrant given) {
            grant = given;
        }
    }

    OwnerSession(long id, EmbeddedClient client) {
        this.id = id;
        this.client = client;
    }

    void heard() {
        lastHeard = System.nanoTime();
    }

    /// The user has said that it leaves: no further batch begins.
    void leave() {
        leaving = true;
    }

    /// Whether the user has left, or has sent nothing within `limit`.
    boolean hasLeft(Duration limit) {
        return leaving || System.nanoTime() - lastHeard > limit.toNanos();
    }

    /// Batches of puts under way.
    int openPuts() {
        synchronized (open) {
            int count = 0;
            for (OpenPuts batch : open) {
                count += batch == null ? 0 : 1;
            }
            return count;
        }
    }

    /// Begins a batch of puts, which the caller fills in and then hands over with [#begun] or gives
    /// up with [#giveUp].
    ///
    /// @param by when it must have ended
    /// @return null when there is no room for another batch, its number is taken or was given up,
    ///   or the session ends
    @Nullable OpenPuts begin(long number, int keys, Deadline by) {
        if (number <= 0 || leaving || isAbandoned(number)) {
            return null;
        }
        var batch = new OpenPuts(number, keys, by);
        synchronized (open) {
            int free = find(null);
            if (free < 0 || closing || over || find(number) != null) {
                return null;
            }
            open[free] = batch;
            return batch;
        }
    }

    /// The place of a batch, or of a gap. Under the lock.
    private int find(@Nullable OpenPuts batch) {
        for (int i = 0; i < open.length; i++) {
            if (open[i] == batch) {
                return i;
            }
        }
        return -1;
    }

    private @Nullable OpenPuts find(long number) {
        synchronized (open) {
            for (OpenPuts batch : open) {
                if (batch != null && batch.number == number) {
                    return batch;
                }
            }
            return null;
        }
    }

    private @Nullable OpenPuts at(int place) {
        synchronized (open) {
            return open[place];
        }
    }

    /// Hands the batch over: from now on the user, or its deadline, ends it. A batch that the user
    /// has abandoned meanwhile is given up here, since nothing else would end its grant.
    void begun(OpenPuts batch) {
        batch.busy.set(false);
        if (isAbandoned(batch.number)) {
            tryGiveUp(batch);
        }
    }

    private boolean isAbandoned(long number) {
        synchronized (abandoned) {
            return abandoned.contains(number);
        }
    }

    /// Its user does not wait for the beginning of a batch, which may have been or may yet come.
    private void abandon(long number) {
        synchronized (abandoned) {
            if (abandoned.size() == MOST_ABANDONED && !abandoned.contains(number)) {
                abandoned.remove(abandoned.iterator().next());
            }
            abandoned.add(number);
        }
        OpenPuts batch = find(number);
        if (batch != null) {
            tryGiveUp(batch);
        }
    }

    /// Ends a batch: first write access to its memory ends, then its objects become readable.
    ///
    /// @param written whether the bytes have arrived; if not, the puts are revoked
    /// @return per key 0 or a code; empty for a batch that is not (or no longer) in progress
    int[] end(long number, boolean written, int[] checksums) {
        OpenPuts batch = find(number);
        if (batch == null || !batch.busy.compareAndSet(false, true)) {
            if (!written) {
                abandon(number);
            }
            return NONE;
        }
        if (written && checksums.length != batch.started.length) {
            giveUp(batch);
            return NONE;
        }
        boolean ended = false;
        try {
            int[] results = batch.results.clone();
            if (!closeGrant(batch)) {
                Arrays.fill(results, StoreCode.TRANSFER_FAIL.number());
                return results;
            }
            for (int i = 0; i < results.length; i++) {
                Started put = batch.started[i];
                if (put != null) {
                    results[i] = written ? endPut(put, checksums[i]) : revoke(put);
                }
            }
            ended = true;
            return results;
        } finally {
            release(batch, ended);
        }
    }

    /// Revokes the put if the store has been closed meanwhile, since nothing else would.
    private int endPut(Started put, int checksum) {
        int result = client.putEnd(put.key(), put.number(), checksum);
        if (result == StoreCode.UNAVAILABLE_IN_CURRENT_STATUS.number()) {
            client.putRevoke(put.key(), put.number());
        }
        return result;
    }

    private int revoke(Started put) {
        client.putRevoke(put.key(), put.number());
        return StoreCode.TRANSFER_FAIL.number();
    }

    /// Gives up a batch unless another thread begins or ends it.
    private void tryGiveUp(OpenPuts batch) {
        if (batch.busy.compareAndSet(false, true)) {
            giveUp(batch);
        }
    }

    /// Gives up a batch that is the caller's to begin or end. Where that fails it is tried later.
    void giveUp(OpenPuts batch) {
        boolean ended = false;
        try {
            if (closeGrant(batch)) {
                for (Started put : batch.started) {
                    if (put != null) {
                        revoke(put);
                    }
                }
                ended = true;
            }
        } finally {
            release(batch, ended);
        }
    }

    /// @param ended whether nothing is left of the batch; else it can be given up again
    private void release(OpenPuts batch, boolean ended) {
        if (!ended) {
            batch.busy.set(false);
            return;
        }
        synchronized (open) {
            open[find(batch)] = null;
        }
    }

    /// Where a process of this host was stopped in the middle of a copy, the grant cannot be closed
    /// for now, and the memory must not be used again. The batch stays, and is tried later.
    private static boolean closeGrant(OpenPuts batch) {
        WriteGrant grant = batch.grant;
        try {
            if (grant != null) {
                grant.close();
            }
            return true;
        } catch (RuntimeException e) {
            LOG.warn("a grant for puts could not be closed; it is tried again: {}", e.toString());
            return false;
        }
    }

    /// Gives up what has not been ended in time.
    void revokeLate() {
        for (int i = 0; i < open.length; i++) {
            OpenPuts batch = at(i);
            if (batch != null && batch.by.passed()) {
                tryGiveUp(batch);
            }
        }
    }

    /// Gives up everything; the objects stay.
    ///
    /// @return false when a grant could not be closed, or a batch is just beginning or ending, so
    ///   that this has to be called again; until then batches may begin as before
    boolean close() {
        synchronized (open) {
            closing = true;
        }
        try {
            for (int i = 0; i < open.length; i++) {
                OpenPuts batch = at(i);
                if (batch != null) {
                    tryGiveUp(batch);
                }
            }
        } finally {
            synchronized (open) {
                over = over || openPuts() == 0;
                closing = false;
            }
        }
        if (isOver()) {
            client.close();
        }
        return isOver();
    }

    private boolean isOver() {
        synchronized (open) {
            return over;
        }
    }
}
