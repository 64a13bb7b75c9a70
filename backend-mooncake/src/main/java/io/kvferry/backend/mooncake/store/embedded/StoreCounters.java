// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.backend.mooncake.store.tier.DiskTier;

import org.jspecify.annotations.Nullable;

import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.LongAdder;

/// What an embedded store counts, since it was opened; names as in the metrics of Mooncake's
/// master.
///
/// Threading: any thread.
final class StoreCounters {
    final LongAdder putStarts = new LongAdder();
    final LongAdder putStartFailures = new LongAdder();
    final LongAdder allocFailures = new LongAdder();
    final LongAdder partialAllocations = new LongAdder();
    final LongAdder putEnds = new LongAdder();
    final LongAdder putRevokes = new LongAdder();
    final LongAdder gets = new LongAdder();
    final LongAdder getFailures = new LongAdder();
    final LongAdder hitBytes = new LongAdder();
    final LongAdder checksumFailures = new LongAdder();
    final LongAdder exists = new LongAdder();
    final LongAdder removes = new LongAdder();
    final LongAdder removeFailures = new LongAdder();
    final LongAdder evictionAttempts = new LongAdder();
    final LongAdder evictions = new LongAdder();
    final LongAdder evictedKeys = new LongAdder();
    final LongAdder evictedBytes = new LongAdder();
    final LongAdder discards = new LongAdder();
    final LongAdder releases = new LongAdder();

    /// @param tier whose counts belong to it
    Map<String, Long> values(@Nullable DiskTier tier) {
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
