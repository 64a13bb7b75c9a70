// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.memory;

import java.util.ArrayDeque;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.ReentrantLock;

/// WRITEs that their senders have given up, by token: what of them still comes out of socket
/// buffers is refused. The oldest are forgotten when there are too many; by then their connections
/// are long gone.
///
/// Threading: any thread.
public final class TransferFences {
    private static final int MOST = 1 << 16;

    private final Map<Long, Boolean> refused = new ConcurrentHashMap<>();
    private final ReentrantLock lock = new ReentrantLock();
    private final ArrayDeque<Long> oldest = new ArrayDeque<>();
    private volatile boolean any;

    public void refuse(long token) {
        lock.lock();
        try {
            if (refused.put(token, true) == null) {
                oldest.add(token);
                if (oldest.size() > MOST) {
                    refused.remove(oldest.remove());
                }
            }
            any = true;
        } finally {
            lock.unlock();
        }
    }

    public boolean refuses(long token) {
        return any && refused.containsKey(token);
    }
}
