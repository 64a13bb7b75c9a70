// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.backend.disk.block.BlockResult;
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

    /// No switch: one over constants and types makes some forty classes when it is first used, in
    /// the middle of the first load.
    void count(BlockResult result, long bytes) {
        if (result instanceof BlockResult.Failed failed) {
            of(failed.failure().code()).increment();
        } else if (result == BlockResult.Done.LOADED) {
            loads.increment();
            loadedBytes.add(bytes);
        } else if (result == BlockResult.Done.STORED) {
            saves.increment();
            savedBytes.add(bytes);
        } else if (result == BlockResult.Done.PRESENT) {
            alreadyPresent.increment();
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
