// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.memory;

import io.kvferry.backend.mooncake.te.Extents;
import io.kvferry.backend.mooncake.te.WriteGrant;

import org.jspecify.annotations.Nullable;

import java.security.SecureRandom;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.ReentrantLock;

/// The open write grants of this engine. Lookups take no lock.
public final class GrantTable {
    private static final Grant[] NONE = {};

    private final Map<Long, Grant> open = new ConcurrentHashMap<>();
    private final SecureRandom random = new SecureRandom();

    /// Named by peers that may use memory of [Access#KEYED].
    private final long memoryKey = random.nextLong() | 1;

    private final ReentrantLock changing = new ReentrantLock();
    private volatile Grant[] forAnybody = NONE;

    /// One grant; its gate is held by each write under it.
    ///
    /// @param key the token, as the table has it: no memory is needed to forget the grant
    /// @param arrivals under a grant for any peer
    public record Grant(
            Long key,
            Extents extents,
            WriteGrant.Writers writers,
            UseGate gate,
            Optional<Arrivals> arrivals) {
        public long token() {
            return key;
        }

        public boolean covers(long from, long length) {
            return extents.covers(from, length);
        }

        /// A WRITE under it is in memory, all of it.
        ///
        /// @param receipt whether its sender waits for a receipt
        public void arrived(long address, long bytes, boolean receipt) {
            if (arrivals.isPresent()) {
                arrivals.get().arrived(address, bytes, receipt);
            }
        }

        /// A WRITE under it ended before its last byte.
        public void torn() {
            arrivals.ifPresent(Arrivals::torn);
        }
    }

    public long memoryKey() {
        return memoryKey;
    }

    public Grant open(Extents extents, WriteGrant.Writers writers) {
        while (true) {
            Optional<Arrivals> arrivals =
                    writers == WriteGrant.Writers.ANY
                            ? Optional.of(new Arrivals())
                            : Optional.empty();
            var grant = new Grant(random.nextLong(), extents, writers, new UseGate(), arrivals);
            if (grant.token() != 0
                    && grant.token() != memoryKey
                    && open.putIfAbsent(grant.key(), grant) == null) {
                boolean done = false;
                try {
                    if (writers == WriteGrant.Writers.ANY) {
                        addForAnybody(grant);
                    }
                    done = true;
                } finally {
                    if (!done) {
                        forget(grant);
                    }
                }
                return grant;
            }
        }
    }

    private void addForAnybody(Grant grant) {
        changing.lock();
        try {
            Grant[] grown = Arrays.copyOf(forAnybody, forAnybody.length + 1);
            grown[grown.length - 1] = grant;
            forAnybody = grown;
        } finally {
            changing.unlock();
        }
    }

    /// Refuses the token from now on. A grant for any peer still records refused WRITEs until
    /// [#remove].
    public void forget(Grant grant) {
        open.remove(grant.key());
    }

    public void remove(Grant grant) {
        forget(grant);
        if (grant.writers() == WriteGrant.Writers.ANY) {
            changing.lock();
            try {
                forAnybody =
                        Arrays.stream(forAnybody)
                                .filter(other -> other != grant)
                                .toArray(Grant[]::new);
            } finally {
                changing.unlock();
            }
        }
    }

    @Nullable
    public Grant find(long token) {
        return open.get(token);
    }

    /// Enters the grant under which a peer without a token may write a range; null if there is
    /// none.
    ///
    /// @param last the grant that the same peer used last, checked first
    @Nullable Grant enterUnnamed(GateSet held, long from, long length, @Nullable Grant last) {
        if (last != null && last.covers(from, length) && held.enter(last.gate())) {
            return last;
        }
        for (Grant grant : forAnybody) {
            if (grant.covers(from, length) && held.enter(grant.gate())) {
                return grant;
            }
        }
        return null;
    }

    /// Records a refused WRITE without a token at every grant that overlaps it, since their owners
    /// wait for these bytes.
    ///
    /// @param receipt whether the sender is told
    void refused(long from, long length, boolean receipt) {
        for (Grant grant : forAnybody) {
            if (grant.extents().overlaps(from, length)) {
                grant.arrivals()
                        .ifPresent(arrivals -> arrivals.refused(grant.gate().isClosed(), receipt));
            }
        }
    }
}
