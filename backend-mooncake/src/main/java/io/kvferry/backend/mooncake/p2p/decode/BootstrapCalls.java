// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.decode;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.net.URI;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/// Limits how many calls of bootstrap services are under way: few of each, because requests name as
/// many engines of one as they like, and so many of all that those that do not answer leave room
/// for others.
///
/// Threading: any thread; a call waits for its turn.
final class BootstrapCalls {
    private static final int MOST_OF_ONE = 4;
    private static final int MOST = 256;

    private final ReentrantLock lock = new ReentrantLock();
    private final Condition ended = lock.newCondition();
    private final Map<String, Integer> open = new HashMap<>(); // by service, under the lock
    private int all; // under the lock

    /// One call.
    @FunctionalInterface
    interface Call<T> {
        T run() throws InterruptedException;
    }

    /// Makes the call when it is its turn.
    ///
    /// @param limit for the turn to come
    /// @throws KvFerryException [ErrorCode#BACKPRESSURE] when it did not come; whatever the call
    ///   throws
    <T> T run(URI service, Deadline limit, Call<T> call) throws InterruptedException {
        var name =
                String.valueOf(service.getHost()).toLowerCase(Locale.ROOT)
                        + ":"
                        + service.getPort();
        enter(name, limit);
        try {
            return call.run();
        } finally {
            leave(name);
        }
    }

    private void enter(String service, Deadline limit) throws InterruptedException {
        lock.lock();
        try {
            while (!hasRoom(service)) {
                if (limit.passed()) {
                    throw new KvFerryException(
                            ErrorCode.BACKPRESSURE,
                            "too many prefillers are looked up at " + service + ", or everywhere");
                }
                var _ = ended.awaitNanos(limit.remainingNanos());
            }
            open.merge(service, 1, Integer::sum);
            all++;
        } finally {
            lock.unlock();
        }
    }

    /// The second half of the places is for services that have none.
    private boolean hasRoom(String service) {
        int most = all < MOST / 2 ? MOST_OF_ONE : 1;
        return all < MOST && open.getOrDefault(service, 0) < most;
    }

    private void leave(String service) {
        lock.lock();
        try {
            open.computeIfPresent(service, (_, count) -> count > 1 ? count - 1 : null);
            all--;
            ended.signalAll();
        } finally {
            lock.unlock();
        }
    }
}
