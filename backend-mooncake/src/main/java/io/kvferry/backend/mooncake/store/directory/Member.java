// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.directory;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreUsage;
import io.kvferry.backend.mooncake.store.master.ListedOwner;
import io.kvferry.backend.mooncake.store.remote.RemoteStore;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.function.ToLongFunction;

/// One owner of a store, as one user sees it. It is closed when it is not listed any more and the
/// last call has returned: a call may be moving bytes.
///
/// Threading: any thread.
final class Member {
    private static final Logger LOG = LoggerFactory.getLogger(Member.class);
    private static final long GONE = StoreCode.RPC_FAIL.number();

    /// How long an owner that did not answer in time is asked only where no other one is there.
    private static final Duration REST = Duration.ofSeconds(2);

    private final ListedOwner owner;
    private final RemoteStore store;
    private int calls;
    private boolean retired;
    private boolean closed;
    private volatile boolean slow;
    private volatile long slowUntil;

    Member(ListedOwner owner, RemoteStore store) {
        this.owner = owner;
        this.store = store;
    }

    /// Name of its segment, which tells it from others.
    String segment() {
        return owner.segment();
    }

    boolean isAt(ListedOwner listed) {
        return owner.segment().equals(listed.segment()) && owner.address().equals(listed.address());
    }

    /// Whether it can be asked now.
    boolean isThere() {
        return store.healthCheck() == 0;
    }

    /// Whether it has not answered in time a moment ago.
    boolean isSlow() {
        return slow && slowUntil - System.nanoTime() > 0;
    }

    /// Bytes that are free, as far as is known.
    long free() {
        return store.usage().map(Member::free).orElse(owner.capacity());
    }

    private static long free(StoreUsage usage) {
        return usage.capacity() - usage.used();
    }

    /// What it says about itself; not counted as a call.
    RemoteStore quick() {
        return store;
    }

    /// Makes a call, unless the owner has been taken off the list.
    ///
    /// @return what the call answers; RPC_FAIL without one, INTERNAL when it throws
    long call(ToLongFunction<RemoteStore> call) {
        synchronized (this) {
            if (closed) {
                return GONE;
            }
            calls++;
        }
        try {
            return call.applyAsLong(store);
        } catch (RuntimeException e) {
            LOG.warn("a call to owner {} failed", owner.segment(), e);
            return StoreCode.INTERNAL.number();
        } finally {
            boolean last;
            synchronized (this) {
                calls--;
                last = retired && calls == 0 && !closed;
                closed |= last;
            }
            if (last) {
                store.close();
            }
        }
    }

    /// Takes note of what a call answered.
    void answered(long code) {
        if (code == StoreCode.RPC_TIMEOUT.number()) {
            slowUntil = System.nanoTime() + REST.toNanos();
            slow = true;
        }
    }

    /// It is not listed any more.
    void retire() {
        boolean idle;
        synchronized (this) {
            retired = true;
            idle = calls == 0 && !closed;
            closed |= idle;
        }
        if (idle) {
            store.close();
        }
    }

    /// Ends its use, also where calls are under way.
    void close() {
        synchronized (this) {
            closed = true;
        }
        store.close();
    }

    @Override
    public String toString() {
        return owner.segment();
    }
}
