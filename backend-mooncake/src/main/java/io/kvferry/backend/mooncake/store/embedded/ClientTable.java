// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.backend.mooncake.store.embedded.objects.StoreTime;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/// Who uses a store, and who of them has to ping because segments of its are mounted.
///
/// Threading: any thread.
final class ClientTable {
    private final StoreTime time;
    private final long timeToLive;
    private final Map<Long, Long> lastPing = new HashMap<>();
    private long last = EmbeddedStore.OWN;

    ClientTable(StoreTime time, long timeToLive) {
        this.time = time;
        this.timeToLive = timeToLive;
    }

    /// The number of a new client.
    synchronized long add() {
        return ++last;
    }

    /// From now on the client has to ping.
    synchronized void watch(long client) {
        lastPing.put(client, time.now());
    }

    synchronized boolean isWatched(long client) {
        return lastPing.containsKey(client);
    }

    synchronized void forget(long client) {
        lastPing.remove(client);
    }

    /// Records a ping.
    ///
    /// @return false when the client is not, or no longer, tracked; its segments are gone
    synchronized boolean ping(long client) {
        return lastPing.computeIfPresent(client, (_, _) -> time.now()) != null;
    }

    /// Takes out those that have not pinged for too long.
    synchronized List<Long> expired() {
        if (lastPing.isEmpty()) {
            return List.of();
        }
        long now = time.now();
        var gone = new ArrayList<Long>();
        lastPing.forEach((client, ping) -> {
            if (now - ping > timeToLive) {
                gone.add(client);
            }
        });
        gone.forEach(lastPing::remove);
        return gone;
    }
}
