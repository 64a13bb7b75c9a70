// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.memory;

import io.kvferry.toolkit.bounded.GrowSafeQueue;

import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.ReentrantLock;

/// Tokens of WRITEs that their senders have given up. Their bytes that are still in socket buffers
/// are refused. At the limit, the oldest token of the host with the most is forgotten; by then its
/// connection is long closed, unless that host fences WRITEs that it never sent.
///
/// Threading: any thread.
public final class TransferFences {
    private static final int MOST = 1 << 16;

    private final int most;
    private final Set<Long> refused = ConcurrentHashMap.newKeySet();
    private final ReentrantLock lock = new ReentrantLock();

    /// Of each host, the oldest first; none is empty.
    private final Map<String, GrowSafeQueue<Long>> hosts = new HashMap<>(); // under the lock

    private int count; // under the lock
    private volatile boolean any;

    public TransferFences() {
        this(MOST);
    }

    /// @param most of all hosts together
    TransferFences(int most) {
        this.most = most;
    }

    /// @param host who asks for it
    public void refuse(String host, long token) {
        lock.lock();
        try {
            if (!refused.contains(token)) {
                hosts.computeIfAbsent(host, _ -> new GrowSafeQueue<>()).add(token);
                count++;
                refused.add(token);
                if (count > most) {
                    forgetOne();
                }
            }
            any = true;
        } finally {
            lock.unlock();
        }
    }

    private void forgetOne() {
        var largest =
                Collections.max(
                        hosts.entrySet(), Comparator.comparingInt(each -> each.getValue().size()));
        refused.remove(largest.getValue().remove());
        count--;
        if (largest.getValue().isEmpty()) {
            hosts.remove(largest.getKey());
        }
    }

    public boolean refuses(long token) {
        return any && refused.contains(token);
    }
}
