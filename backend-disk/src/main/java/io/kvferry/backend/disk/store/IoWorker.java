// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.bounded.LoopReport;
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

    /// Used when describing a failure throws, most likely for lack of memory.
    private static final BlockResult NO_MEMORY =
            BlockResult.Failed.of(ErrorCode.NO_MEMORY, "no memory to serve the request");

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

    /// For tests that choose the staging memory.
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

    /// Serves requests until the pool is closed. Throws only an OutOfMemoryError, without logging
    /// it; may then be run again.
    @Override
    public void run() {
        var self = new IoPool.ParkedWorker(role, Thread.currentThread());
        try (var tools = new Tools()) {
            try {
                tools.make();
            } catch (RuntimeException | Error e) {
                LoopReport.WARN.log(
                        LOG, "an I/O thread cannot work; it tries again for each request", e);
            }
            for (BlockTask task = pool.take(self); task != null; task = pool.take(self)) {
                boolean reads = task.kind().reads();
                try {
                    if (task.start()) {
                        serve(task, tools);
                    }
                } finally {
                    pool.recycle(task, reads);
                }
            }
        }
    }

    /// The thread's working objects. If they cannot be allocated, requests fail and the thread
    /// continues.
    private final class Tools implements AutoCloseable {
        private final Arena arena = Arena.ofConfined();
        private @Nullable AlignedStaging staging;
        private StoreFolder.@Nullable Names names;
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
            var paths = names;
            if (paths == null) {
                paths = core.folder().names(arena);
                names = paths;
            }
            if (reader == null) {
                reader = new BlockReader(core, memory, paths, arena, direct);
            }
            writer = new BlockWriter(core, memory, paths, arena, direct);
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
        BlockResult result = outcome(task, tools);
        if (task.finish()) {
            try {
                // Before the caller can look.
                counters.count(result, task.payloadBytes());
            } finally {
                tell(task, result);
            }
        }
    }

    private static void tell(BlockTask task, BlockResult result) {
        try {
            task.tell(result);
        } catch (RuntimeException | Error e) { // a defect of the caller must not end this thread
            LoopReport.WARN.log(LOG, "the callback of a {} threw", task.kind(), e);
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
        } catch (RuntimeException | Error e) {
            return failed(e);
        }
    }

    private static BlockResult failed(Throwable why) {
        try {
            return why instanceof OutOfMemoryError
                    ? BlockResult.Failed.of(
                            ErrorCode.NO_MEMORY,
                            "no staging memory for a block: " + why.getMessage())
                    : new BlockResult.Failed(Failure.of(why));
        } catch (RuntimeException | Error _) {
            return NO_MEMORY;
        }
    }
}
