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
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/// What the owner knows of one user: whose objects it may touch, and its puts under way. Each batch
/// of puts has a grant for exactly the memory that it is to fill.
///
/// Threading: any thread.
final class OwnerSession {
    private static final Logger LOG = LoggerFactory.getLogger(OwnerSession.class);
    private static final int MOST_OPEN_PUTS = 256;

    /// With more of them the oldest may begin all the same, and is given up late.
    private static final int MOST_ABANDONED = 1024;

    final long id;
    final EmbeddedClient client;
    private final Map<Long, OpenPuts> puts = new ConcurrentHashMap<>();

    /// Numbers of batches that their user gave up before they began, the oldest first.
    private final Set<Long> abandoned = new LinkedHashSet<>();

    /// Of batches that come under a number that is taken; those of users are positive.
    private final AtomicLong refused = new AtomicLong();

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

    /// Whether there is room for another batch of puts, and it may have this number.
    boolean mayPut(long number) {
        return number > 0
                && puts.size() < MOST_OPEN_PUTS
                && !puts.containsKey(number)
                && !isAbandoned(number);
    }

    /// A batch that comes when the session has been closed meanwhile, or when its user does not
    /// wait for it any more, is given up at once: nobody would end its grant.
    void add(long number, OpenPuts batch) {
        if (puts.putIfAbsent(number, batch) != null) {
            revoke(refused.decrementAndGet(), batch);
        } else if (closed) {
            giveUpAll();
        } else if (isAbandoned(number)) {
            giveUp(number);
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
        giveUp(number);
    }

    private void giveUp(long number) {
        OpenPuts batch = puts.remove(number);
        if (batch != null) {
            revoke(number, batch);
        }
    }

    /// Ends a batch: nobody writes to its memory any more, then its objects can be read.
    ///
    /// @param written whether the bytes are there; else the puts are given up
    /// @return per key 0 or a code; empty for a batch that is not (or no longer) under way
    int[] end(long number, boolean written, int[] checksums) {
        if (!written && !puts.containsKey(number)) {
            abandon(number);
        }
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
                results[i] = written ? end(put, checksums[i]) : revoke(put);
            }
        }
        return results;
    }

    /// When the session has been closed meanwhile the put is given up: nobody else would do it.
    private int end(Started put, int checksum) {
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
