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
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/// What the owner knows of one user: whose objects it may touch, and its puts under way. Each batch
/// of puts has a grant for exactly the memory that it is to fill.
///
/// Threading: any thread.
final class OwnerSession {
    private static final Logger LOG = LoggerFactory.getLogger(OwnerSession.class);
    private static final int MOST_OPEN_PUTS = 256;

    final long id;
    final EmbeddedClient client;
    private final Map<Long, OpenPuts> puts = new ConcurrentHashMap<>();
    private final AtomicLong numbers = new AtomicLong();
    private volatile long lastHeard = System.nanoTime();
    private volatile boolean closed;

    /// A batch of puts under way.
    ///
    /// @param started null where a key was refused
    /// @param by when it must have ended
    @SuppressWarnings("ArrayRecordComponent") // columnar on purpose; never compared
    record OpenPuts(
            @Nullable Started[] started, int[] results, @Nullable WriteGrant grant, Deadline by) {}

    OwnerSession(long id, EmbeddedClient client) {
        this.id = id;
        this.client = client;
    }

    void heard() {
        lastHeard = System.nanoTime();
    }

    boolean isSilent(Duration limit) {
        return System.nanoTime() - lastHeard > limit.toNanos();
    }

    /// Room for another batch of puts.
    boolean mayPut() {
        return puts.size() < MOST_OPEN_PUTS;
    }

    /// A batch that comes when the session has been closed meanwhile is given up at once: nobody
    /// would end its grant.
    long add(OpenPuts batch) {
        long number = numbers.incrementAndGet();
        puts.put(number, batch);
        if (closed) {
            giveUpAll();
        }
        return number;
    }

    /// Ends a batch: nobody writes to its memory any more, then its objects can be read.
    ///
    /// @param written whether the bytes are there; else the puts are given up
    /// @return per key 0 or a code; empty for a batch that is not (or no longer) under way
    int[] end(long number, boolean written, int[] checksums) {
        OpenPuts batch = puts.remove(number);
        if (batch == null || checksums.length != batch.started().length && written) {
            if (batch != null) {
                revoke(number, batch);
            }
            return new int[0];
        }
        if (!close(number, batch)) {
            int[] failed = new int[batch.results().length];
            Arrays.fill(failed, StoreCode.TRANSFER_FAIL.number());
            return failed;
        }
        int[] results = batch.results().clone();
        for (int i = 0; i < results.length; i++) {
            Started put = batch.started()[i];
            if (put != null) {
                results[i] =
                        written
                                ? client.putEnd(put.key(), put.number(), checksums[i])
                                : revoke(put);
            }
        }
        return results;
    }

    private int revoke(Started put) {
        client.putRevoke(put.key(), put.number());
        return StoreCode.TRANSFER_FAIL.number();
    }

    private void revoke(long number, OpenPuts batch) {
        if (close(number, batch)) {
            for (Started put : batch.started()) {
                if (put != null) {
                    revoke(put);
                }
            }
        }
    }

    /// Where a process of this host was stopped in the middle of a copy, the grant cannot be closed
    /// for now, and the memory must not be used again. The batch stays, and is tried later.
    private boolean close(long number, OpenPuts batch) {
        WriteGrant grant = batch.grant();
        try {
            if (grant != null) {
                grant.close();
            }
            return true;
        } catch (RuntimeException e) {
            LOG.warn("a grant for puts could not be closed; it is tried again: {}", e.toString());
            puts.put(number, batch);
            return false;
        }
    }

    /// Gives up what has not been ended in time.
    void revokeLate() {
        puts.forEach((number, batch) -> {
            if (batch.by().passed() && puts.remove(number, batch)) {
                revoke(number, batch);
            }
        });
    }

    /// Gives up everything; the objects stay.
    ///
    /// @return false when a grant could not be closed, so that it has to be called again
    boolean close() {
        giveUpAll();
        closed = true;
        giveUpAll(); // what began before others saw that
        if (!puts.isEmpty()) {
            closed = false;
            return false;
        }
        client.close();
        return true;
    }

    private void giveUpAll() {
        puts.forEach((number, batch) -> {
            if (puts.remove(number, batch)) {
                revoke(number, batch);
            }
        });
    }
}
