// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.disk.AlignedStaging;
import io.kvferry.toolkit.disk.IoPool;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.foreign.Arena;
import java.util.Objects;
import java.util.function.LongFunction;

/// One I/O thread: takes requests, serves them, owns its staging and path buffers until it ends.
final class IoWorker implements Runnable {
    private static final Logger LOG = LoggerFactory.getLogger(IoWorker.class);
    private static final long FIRST_STAGING_BYTES = 64 << 10;

    private final StoreCore core;
    private final StoreCounters counters;
    private final IoPool<BlockTask> pool;
    private final IoPool.Role role;
    private final DirectMode direct;
    private final LongFunction<AlignedStaging> stagings;

    IoWorker(
            StoreCore core,
            StoreCounters counters,
            IoPool<BlockTask> pool,
            IoPool.Role role,
            DirectMode direct) {
        this(core, counters, pool, role, direct, AlignedStaging::new);
    }

    /// With staging of which a test decides whether there is any.
    IoWorker(
            StoreCore core,
            StoreCounters counters,
            IoPool<BlockTask> pool,
            IoPool.Role role,
            DirectMode direct,
            LongFunction<AlignedStaging> stagings) {
        this.core = core;
        this.counters = counters;
        this.pool = pool;
        this.role = role;
        this.direct = direct;
        this.stagings = stagings;
    }

    @Override
    public void run() {
        var self = new IoPool.ParkedWorker(role, Thread.currentThread());
        try (var tools = new Tools()) {
            try {
                tools.make();
            } catch (OutOfMemoryError e) {
                LOG.warn("an I/O thread has no memory; it tries again for each request", e);
            }
            for (BlockTask task = pool.take(self); task != null; task = pool.take(self)) {
                boolean reads = task.kind().reads();
                if (task.start()) {
                    serve(task, tools);
                }
                pool.recycle(task, reads);
            }
        }
    }

    /// What the thread works with. Where there is no memory for it, requests fail and the thread
    /// goes on.
    private final class Tools implements AutoCloseable {
        private final Arena arena = Arena.ofConfined();
        private @Nullable AlignedStaging staging;
        private @Nullable BlockReader reader;
        private @Nullable BlockWriter writer;

        /// Makes what is not there yet.
        void make() {
            if (writer != null) {
                return;
            }
            var memory = staging;
            if (memory == null) {
                memory = stagings.apply(FIRST_STAGING_BYTES);
                staging = memory;
            }
            StoreFolder.Names names = core.folder().names(arena);
            reader = new BlockReader(core, memory, names, arena, direct);
            writer = new BlockWriter(core, memory, names, arena, direct);
        }

        BlockReader reader() {
            return Objects.requireNonNull(reader);
        }

        BlockWriter writer() {
            return Objects.requireNonNull(writer);
        }

        @Override
        public void close() {
            if (staging != null) {
                staging.close();
            }
            arena.close();
        }
    }

    private void serve(BlockTask task, Tools tools) {
        long bytes = RecordFormat.payloadBytes(task.segments());
        BlockResult result = outcome(task, tools);
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
        Thread.interrupted(); // left by the caller: channels would fail the next request
    }

    /// Turns every exception into a failure of this request; the thread goes on.
    private static BlockResult outcome(BlockTask task, Tools tools) {
        try {
            tools.make();
            return switch (task.kind()) {
                case LOAD -> tools.reader().load(task);
                case SAVE -> tools.writer().save(task);
                case LOCATE -> tools.reader().locate(task);
                case TOUCH -> tools.reader().touch(task);
            };
        } catch (OutOfMemoryError e) {
            return BlockResult.Failed.of(
                    ErrorCode.NO_MEMORY, "no staging memory for a block: " + e.getMessage());
        } catch (RuntimeException | Error e) {
            return new BlockResult.Failed(Failure.of(e));
        }
    }
}
