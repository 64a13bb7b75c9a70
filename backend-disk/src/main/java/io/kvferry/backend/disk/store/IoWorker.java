// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.disk.AlignedStaging;
import io.kvferry.toolkit.disk.IoPool;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.foreign.Arena;

/// One I/O thread: takes requests, serves them, owns its staging and path buffers until it ends.
final class IoWorker implements Runnable {
    private static final Logger LOG = LoggerFactory.getLogger(IoWorker.class);
    private static final long FIRST_STAGING_BYTES = 64 << 10;

    private final StoreCore core;
    private final StoreCounters counters;
    private final IoPool<BlockTask> pool;
    private final IoPool.Role role;
    private final boolean direct;

    IoWorker(
            StoreCore core,
            StoreCounters counters,
            IoPool<BlockTask> pool,
            IoPool.Role role,
            boolean direct) {
        this.core = core;
        this.counters = counters;
        this.pool = pool;
        this.role = role;
        this.direct = direct;
    }

    @Override
    public void run() {
        var self = new IoPool.ParkedWorker(role, Thread.currentThread());
        try (Arena arena = Arena.ofConfined();
                var staging = new AlignedStaging(FIRST_STAGING_BYTES)) {
            StoreFolder.Names names = core.folder().names(arena);
            var reader = new BlockReader(core, staging, names, direct);
            var writer = new BlockWriter(core, staging, names, arena, direct);
            for (BlockTask task = pool.take(self); task != null; task = pool.take(self)) {
                boolean reads = task.kind().reads();
                if (task.start()) {
                    serve(task, reader, writer);
                }
                pool.recycle(task, reads);
            }
        }
    }

    private void serve(BlockTask task, BlockReader reader, BlockWriter writer) {
        long bytes = RecordFormat.payloadBytes(task.segments());
        BlockResult result = outcome(task, reader, writer);
        if (task.finish()) {
            counters.count(result, bytes); // before the caller can look
            tell(task, result);
        }
    }

    private static void tell(BlockTask task, BlockResult result) {
        try {
            task.tell(result);
        } catch (RuntimeException | Error e) { // a defect of the caller must not end this thread
            LOG.warn("the callback of a {} threw", task.kind(), e);
        }
    }

    /// The border at which whatever went wrong becomes a failure of this request, and the thread
    /// lives on.
    private static BlockResult outcome(BlockTask task, BlockReader reader, BlockWriter writer) {
        try {
            return switch (task.kind()) {
                case LOAD -> reader.load(task);
                case SAVE -> writer.save(task);
                case LOCATE -> reader.locate(task);
                case TOUCH -> reader.touch(task);
            };
        } catch (OutOfMemoryError e) {
            return BlockResult.Failed.of(
                    ErrorCode.NO_MEMORY, "no staging memory for a block: " + e.getMessage());
        } catch (RuntimeException | Error e) {
            return new BlockResult.Failed(Failure.of(e));
        }
    }
}
