// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.tier;

import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.LongAdder;

/// What a disk tier counts. Names as in the metrics of Mooncake's master where it has them.
///
/// Threading: any thread.
public final class TierCounters {
    public final LongAdder hits = new LongAdder();
    public final LongAdder hitBytes = new LongAdder();
    public final LongAdder offloadedKeys = new LongAdder();
    public final LongAdder offloadedBytes = new LongAdder();
    public final LongAdder offloadSkippedKeys = new LongAdder();
    public final LongAdder promotions = new LongAdder();
    public final LongAdder promotedBytes = new LongAdder();
    public final LongAdder promotionsWithoutRoom = new LongAdder();
    final LongAdder buckets = new LongAdder();
    final LongAdder failedBuckets = new LongAdder();
    final LongAdder deletedBuckets = new LongAdder();
    final LongAdder pauses = new LongAdder();
    final LongAdder failedReads = new LongAdder();
    final LongAdder damagedReads = new LongAdder();
    final LongAdder noStaging = new LongAdder();

    Map<String, Long> values() {
        var values = new TreeMap<String, Long>();
        values.put("file_cache_hit_nums_", hits.sum());
        values.put("file_cache_hit_bytes_total", hitBytes.sum());
        values.put("master_promotion_completed_total", promotions.sum());
        values.put("master_promotion_completed_bytes_total", promotedBytes.sum());
        values.put("master_promotion_rejected_watermark_total", promotionsWithoutRoom.sum());
        values.put("kvferry_disk_offloaded_keys_total", offloadedKeys.sum());
        values.put("kvferry_disk_offloaded_bytes_total", offloadedBytes.sum());
        values.put("kvferry_disk_offload_skipped_keys_total", offloadSkippedKeys.sum());
        values.put("kvferry_disk_offload_pauses_total", pauses.sum());
        values.put("kvferry_disk_buckets_written_total", buckets.sum());
        values.put("kvferry_disk_buckets_failed_total", failedBuckets.sum());
        values.put("kvferry_disk_buckets_deleted_total", deletedBuckets.sum());
        values.put("kvferry_disk_read_failures_total", failedReads.sum());
        values.put("kvferry_disk_checksum_failures_total", damagedReads.sum());
        values.put("kvferry_disk_staging_overflows_total", noStaging.sum());
        return values;
    }
}
