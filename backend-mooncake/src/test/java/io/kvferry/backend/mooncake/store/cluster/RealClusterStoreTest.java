// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.StoreContract;
import io.kvferry.backend.mooncake.store.StoreIdentity;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.time.Duration;
import java.util.HashSet;
import java.util.Set;

/// The contract of stores, run on a real Mooncake cluster.
@Tag("interop")
@Timeout(180)
class RealClusterStoreTest extends StoreContract {
    private static @Nullable RealCluster started;

    private final Set<StoreIdentity> used = new HashSet<>();

    private static synchronized RealCluster cluster() {
        var known = started;
        if (known == null) {
            known = new RealCluster(64 << 20);
            started = known;
        }
        return known;
    }

    @AfterAll
    static void end() {
        var known = started;
        if (known != null) {
            known.close();
            started = null;
        }
    }

    @Override
    protected Store open(StoreIdentity identity) {
        used.add(identity);
        var store = ClusterStore.open(cluster().config(), identity);
        StoreDouble.await(() -> store.healthCheck() == 0, "not connected");
        return store;
    }

    @Override
    protected boolean pass(Duration time) {
        try {
            Thread.sleep(2 * RealCluster.LEASE_MS); // the real thing has no other clock
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        return true;
    }

    @Override
    protected void shutDown() {
        for (StoreIdentity identity : used) {
            try (var store = ClusterStore.open(cluster().config(), identity)) {
                store.removeAll(true);
            }
        }
    }

    /// Without the library: the admin port and the transfer engine.
    @Test
    void thePureJavaReaderSeesWhatIsThere() {
        Store store = user();
        var value = bytes(3, 300_000);
        assertThat(put(store, "model@tp_rank:0@ab", value)).isZero();
        try (var reader =
                new ClusterReader(
                        "http://127.0.0.1:" + cluster().httpPort(), Duration.ofSeconds(50))) {
            var listed = reader.list("kvferry:", 10);
            assertThat(listed).hasSize(1);
            var found = listed.getFirst();
            assertThat(found.key()).endsWith("@model@tp_rank:0@ab");
            assertThat(found.tiers()).isEqualTo("memory");
            assertThat(reader.find(found.key())).contains(found);
            assertThat(reader.find("kvferry:absent")).isEmpty();
            var read = reader.read(found.key(), bytes -> arena.allocate(bytes, 64));
            assertThat(read.byteSize()).isEqualTo(300_000);
            assertThat(read.mismatch(value)).isEqualTo(-1);
        }
    }

    /// The master is away for a while, and a new one takes its place at the same address.
    @Test
    void aMasterThatIsKilledIsAMissAndComesBack() {
        Store store = user();
        var value = bytes(1, 4096);
        assertThat(put(store, "before", value)).isZero();
        cluster().killMaster();
        assertThat(exists(store, "before")).isNegative();
        assertThat(put(store, "while", value)).isNegative();
        cluster().restartMaster();
        StoreDouble.await(() -> put(store, "after", value) == 0, "it does not come back");
        var back = arena.allocate(4096);
        StoreDouble.await(() -> get(store, "after", back) == 4096, "nothing is read");
        assertThat(back.mismatch(value)).isEqualTo(-1);
    }
}
