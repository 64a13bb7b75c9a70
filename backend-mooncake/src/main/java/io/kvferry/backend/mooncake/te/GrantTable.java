// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import org.jspecify.annotations.Nullable;

import java.security.SecureRandom;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/// The open write capabilities of this engine.
final class GrantTable {
    private final Map<Long, Grant> open = new ConcurrentHashMap<>();
    private final SecureRandom random = new SecureRandom();

    /// One capability; its gate is held by each write that names it.
    record Grant(long token, long address, long bytes, UseGate gate) {
        boolean covers(long from, long length) {
            long offset = from - address;
            return Long.compareUnsigned(offset, bytes) < 0
                    && Long.compareUnsigned(length, bytes - offset) <= 0;
        }
    }

    Grant open(long address, long bytes) {
        while (true) {
            var grant = new Grant(random.nextLong(), address, bytes, new UseGate());
            if (grant.token() != 0 && open.putIfAbsent(grant.token(), grant) == null) {
                return grant;
            }
        }
    }

    void remove(Grant grant) {
        open.remove(grant.token());
    }

    @Nullable Grant find(long token) {
        return open.get(token);
    }
}
