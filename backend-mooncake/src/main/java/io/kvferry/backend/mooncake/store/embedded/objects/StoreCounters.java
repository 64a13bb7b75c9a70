// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.objects;

import io.kvferry.backend.mooncake.store.tier.DiskTier;

import org.jspecify.annotations.Nullable;

import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.LongAdder;

/// What an embedded store counts, since it was opened; names as in the metrics of Mooncake's
/// master.
///
/// Threading: any thread.
public final class StoreCounters {
    public final LongAdder putStarts = new LongAdder();
    public final LongAdder putStartFailures = new LongAdder();
    public final LongAdder allocFailures = new LongAdder();
    public final LongAdder partialAllocations = new LongAdder();
    public final LongAdder putEnds = new LongAdder();
    public final LongAdder putRevokes = new LongAdder();
    public final LongAdder gets = new LongAdder();
    public final LongAdder getFailures = new LongAdder();
    public final LongAdder hitBytes = new LongAdder();
    public final LongAdder checksumFailures = new LongAdder();
    public final LongAdder exists = new LongAdder();
    public final LongAdder removes = new LongAdder();
    public final LongAdder removeFailures = new LongAdder();
    public final LongAdder evictionAttempts = new LongAdder();
    public final LongAdder evictions = new LongAdder();
    public final LongAdder evictedKeys = new LongAdder();
    public final LongAdder evictedBytes = new LongAdder();
    public final LongAdder discards = new LongAdder();
    public final LongAdder releases = new LongAdder();

    /// @param tier whose counts belong to it
    public Map<String, Long> values(@Nullable DiskTier tier) {
        var values = new TreeMap<String, Long>();
        long fromDisk = 0;
        if (tier != null) {
            values.putAll(tier.counterValues());
            fromDisk = tier.counters().hits.sum();
        }
        values.put("master_put_start_requests_total", putStarts.sum());
        values.put("master_put_start_failures_total", putStartFailures.sum());
        values.put("master_put_start_alloc_failures_total", allocFailures.sum());
        values.put("master_put_start_partial_allocations_total", partialAllocations.sum());
        values.put("master_put_end_requests_total", putEnds.sum());
        values.put("master_put_revoke_requests_total", putRevokes.sum());
        values.put("total_get_nums_", gets.sum());
        values.put("valid_get_nums_", gets.sum() - getFailures.sum());
        values.put("mem_cache_hit_nums_", gets.sum() - getFailures.sum() - fromDisk);
        values.put("mem_cache_hit_bytes_total", hitBytes.sum());
        values.put("kvferry_checksum_failures_total", checksumFailures.sum());
        values.put("master_exist_key_requests_total", exists.sum());
        values.put("master_remove_requests_total", removes.sum());
        values.put("master_remove_failures_total", removeFailures.sum());
        values.put("master_attempted_evictions_total", evictionAttempts.sum());
        values.put("master_successful_evictions_total", evictions.sum());
        values.put("master_evicted_key_count", evictedKeys.sum());
        values.put("master_evicted_size_bytes", evictedBytes.sum());
        values.put("master_put_start_discard_cnt", discards.sum());
        values.put("master_put_start_release_cnt", releases.sum());
        return values;
    }
}
