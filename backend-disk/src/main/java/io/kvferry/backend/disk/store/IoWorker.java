// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.foreign.Arena;

/// One I/O thread: takes requests, serves them, owns its staging and path buffers until it ends.
final class IoWorker implements Runnable {
    private static final Logger LOG = LoggerFactory.getLogger(IoWorker.class);
    private static final long FIRST_STAGING_BYTES = 64 << 10;

    private final StoreContext store;
    private final IoQueue queue;
    private final IoQueue.Role role;
    private final int number;

    IoWorker(StoreContext store, IoQueue queue, IoQueue.Role role, int number) {
        this.store = store;
        this.queue = queue;
        this.role = role;
        this.number = number;
    }

    @Override
    public void run() {
        var seat = new IoQueue.Seat(role, Thread.currentThread());
        try (Arena arena = Arena.ofConfined();
                var staging = new Staging(FIRST_STAGING_BYTES)) {
            StoreFolder.Names names = store.folder().names(arena, number);
            var reader = new BlockReader(store, staging, names);
            var writer = new BlockWriter(store, staging, names, arena);
            for (IoRequest request = queue.take(seat);
                    request != null;
                    request = queue.take(seat)) {
                if (request.start()) {
                    serve(request, reader, writer);
                }
                queue.recycle(request);
            }
        }
    }

    private void serve(IoRequest request, BlockReader reader, BlockWriter writer) {
        long bytes = RecordFormat.payloadBytes(request.segments());
        BlockResult result = outcome(request, reader, writer);
        if (request.finish()) {
            store.counters().count(result, bytes); // before the caller can look
            tell(request, result);
        }
    }

    private static void tell(IoRequest request, BlockResult result) {
        try {
            request.tell(result);
        } catch (RuntimeException | Error e) { // a defect of the caller must not end this thread
            LOG.warn("the callback of a {} threw", request.kind(), e);
        }
    }

    /// The border at which whatever went wrong becomes a failure of this request, and the thread
    /// lives on.
    private static BlockResult outcome(IoRequest request, BlockReader reader, BlockWriter writer) {
        try {
            return switch (request.kind()) {
                case LOAD -> reader.load(request);
                case SAVE -> writer.save(request);
                case LOCATE -> reader.locate(request);
            };
        } catch (OutOfMemoryError e) {
            return BlockResult.Failed.of(
                    ErrorCode.NO_MEMORY, "no staging memory for a block: " + e.getMessage());
        } catch (RuntimeException | Error e) {
            return new BlockResult.Failed(Failure.of(e));
        }
    }
}
