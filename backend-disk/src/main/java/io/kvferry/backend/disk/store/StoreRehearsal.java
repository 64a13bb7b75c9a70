// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.toolkit.disk.AlignedStaging;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;

/// Saves and loads a block while the first store of a process is opened, so that the first request
/// of an engine does not wait for classes to be loaded and system calls to be linked. The block
/// takes no room from others and is deleted.
final class StoreRehearsal {
    private static final Logger LOG = LoggerFactory.getLogger(StoreRehearsal.class);

    /// More than is read and written at once.
    private static final long BYTES = 300_000;

    private static final AtomicBoolean DONE = new AtomicBoolean();

    private StoreRehearsal() {}

    static void run(StoreCore core, DirectMode direct) {
        if (DONE.getAndSet(true)) {
            return;
        }
        try {
            rehearse(core, direct);
        } catch (RuntimeException | Error e) { // the store works without it
            LOG.debug("the rehearsal of {} failed", core.folder().folder(), e);
        }
    }

    private static void rehearse(StoreCore core, DirectMode direct) {
        var key = BlockKey.of("rehearsal of a store " + Long.toHexString(System.nanoTime()));
        var catalog = core.catalog();
        long left = core.config().space().quotaBytes() - catalog.usedBytes();
        if (left < 4 * BYTES
                || core.config().maxBlockBytes() < BYTES
                || core.freeSpace().shortage(2 * BYTES, System.nanoTime()) > 0) {
            return; // it could cost a block its place
        }
        try (Arena arena = Arena.ofConfined();
                var staging = new AlignedStaging(AlignedStaging.ALIGNMENT)) {
            var names = core.folder().names(arena);
            List<MemorySegment> segments =
                    List.of(arena.allocate(BYTES / 2), arena.allocate(BYTES / 2));
            long deadline = System.nanoTime() + core.config().times().io().toNanos();
            var counters = new StoreCounters();
            var task = new BlockTask(counters);
            for (var kind : List.of(BlockTask.Kind.SAVE, BlockTask.Kind.LOAD)) {
                task.prepare(kind, key, segments, BYTES, deadline, (_, _) -> {}, 0);
                task.start();
                var result =
                        kind == BlockTask.Kind.SAVE
                                ? new BlockWriter(core, staging, names, arena, direct).save(task)
                                : new BlockReader(core, staging, names, arena, direct).load(task);
                task.finish();
                counters.count(result, BYTES);
            }
            core.calls().unlink(names.file(key.digest()));
        } finally {
            catalog.invalidate(key.digest());
        }
    }
}
