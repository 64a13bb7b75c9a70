// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.spi.ErrorCode;

import java.util.concurrent.atomic.LongAdder;

/// Counts of one store since it was opened; read through [StoreStats].
///
/// Threading: any thread.
final class StoreCounters {
    final LongAdder loads = new LongAdder();
    final LongAdder loadedBytes = new LongAdder();
    final LongAdder saves = new LongAdder();
    final LongAdder savedBytes = new LongAdder();
    final LongAdder alreadyPresent = new LongAdder();
    final LongAdder misses = new LongAdder();
    final LongAdder corrupt = new LongAdder();
    final LongAdder incompatible = new LongAdder();
    final LongAdder timeouts = new LongAdder();
    final LongAdder noSpace = new LongAdder();
    final LongAdder failures = new LongAdder();
    final LongAdder refused = new LongAdder();
    final LongAdder evicted = new LongAdder();
    final LongAdder reapedTemps = new LongAdder();

    void count(BlockResult result, long bytes) {
        switch (result) {
            case BlockResult.Done.LOADED -> {
                loads.increment();
                loadedBytes.add(bytes);
            }
            case BlockResult.Done.STORED -> {
                saves.increment();
                savedBytes.add(bytes);
            }
            case BlockResult.Done.PRESENT -> alreadyPresent.increment();
            case BlockResult.Located _ -> {}
            case BlockResult.Failed(var failure) -> of(failure.code()).increment();
        }
    }

    private LongAdder of(ErrorCode code) {
        return switch (code) {
            case MISS -> misses;
            case CORRUPT -> corrupt;
            case INCOMPATIBLE -> incompatible;
            case TIMEOUT -> timeouts;
            case NO_SPACE -> noSpace;
            default -> failures;
        };
    }
}
