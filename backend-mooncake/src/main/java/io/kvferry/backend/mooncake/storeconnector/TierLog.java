// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.ReplicaDescriptor;
import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.StoreBatch;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.ArrayList;
import java.util.Locale;

/// One line per load batch that says from which tier its blocks came, in vLLM's words. Off unless
/// `KVFERRY_MOONCAKE_STORE_TIER_LOG` or `VLLM_MOONCAKE_STORE_TIER_LOG` is `1` or `true`: it costs a
/// query, and leases what it asks about.
///
/// Threading: any thread; a batch at a time on each.
final class TierLog {
    private static final Logger LOG = LoggerFactory.getLogger(TierLog.class);
    private static final String VARIABLE = "MOONCAKE_STORE_TIER_LOG";
    private static final int MEMORY = 0;
    private static final int DISK = 1;
    private static final int UNKNOWN = 2;

    private final Store store;
    private final boolean on;
    private final ThreadLocal<int[]> tiers = ThreadLocal.withInitial(() -> new int[0]);

    TierLog(Store store, boolean on) {
        this.store = store;
        this.on = on;
    }

    static TierLog of(Store store) {
        return new TierLog(store, isSet("KVFERRY_" + VARIABLE) || isSet("VLLM_" + VARIABLE));
    }

    private static boolean isSet(String variable) {
        String value = System.getenv(variable);
        return value != null
                && (value.equals("1") || value.toLowerCase(Locale.ROOT).equals("true"));
    }

    /// Asks where the objects are, before they are read.
    void before(StoreBatch batch) {
        if (!on) {
            return;
        }
        var keys = new ArrayList<String>();
        for (int i = 0; i < batch.size(); i++) {
            keys.add(batch.key(i));
        }
        var found = new @Nullable ReplicaDescriptor[keys.size()];
        store.describe(keys, found, new int[keys.size()]);
        var kinds = new int[found.length];
        for (int i = 0; i < found.length; i++) {
            kinds[i] = kind(found[i]);
        }
        tiers.set(kinds);
    }

    private static int kind(@Nullable ReplicaDescriptor replica) {
        if (replica == null) {
            return UNKNOWN;
        }
        if (replica.isMemoryReplica()) {
            return MEMORY;
        }
        return replica.isDiskReplica() || replica.isLocalDiskReplica() ? DISK : UNKNOWN;
    }

    /// Logs the line, after they were read.
    ///
    /// @param results per key bytes or a code
    void after(String request, long[] results) {
        if (on && results.length > 0) {
            LOG.info(line(request, tiers.get(), results));
        }
    }

    static String line(String request, int[] tiers, long[] results) {
        var keys = new int[3];
        var bytes = new long[3];
        int good = 0;
        for (int i = 0; i < tiers.length; i++) {
            keys[tiers[i]]++;
            if (i < results.length && results[i] >= 0) {
                good++;
                bytes[tiers[i]] += results[i];
            }
        }
        return "Mooncake load tier summary: req_id="
                + request
                + " batch_keys="
                + tiers.length
                + " memory_keys="
                + keys[MEMORY]
                + " disk_keys="
                + keys[DISK]
                + " unknown_keys="
                + keys[UNKNOWN]
                + " success_keys="
                + good
                + " failed_keys="
                + (tiers.length - good)
                + " bytes_by_tier={'memory': "
                + bytes[MEMORY]
                + ", 'disk': "
                + bytes[DISK]
                + ", 'unknown': "
                + bytes[UNKNOWN]
                + "}";
    }
}
