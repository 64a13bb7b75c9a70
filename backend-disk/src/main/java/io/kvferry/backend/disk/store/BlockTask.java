// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.disk.IoTask;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;
import java.util.List;

/// A request to a [BlockStore].
final class BlockTask extends IoTask {
    enum Kind {
        LOAD,
        SAVE,
        LOCATE,
        /// Notes a use; has no callback.
        TOUCH;

        boolean reads() {
            return this != SAVE;
        }
    }

    private static final BlockCallback NO_CALLBACK = (_, _) -> {};
    private static final BlockSearch NOTHING = _ -> 0;

    private final StoreCounters counters;
    private Kind kind = Kind.LOAD;
    private @Nullable BlockKey key;
    private List<MemorySegment> segments = List.of();
    private long payloadBytes;
    private List<BlockKey> keys = List.of();
    private BlockSearch search = NOTHING;
    private BlockCallback callback = NO_CALLBACK;
    private long tag;

    BlockTask(StoreCounters counters) {
        this.counters = counters;
    }

    /// A load or save.
    ///
    /// @param newPayloadBytes of all segments
    void prepare(
            Kind newKind,
            BlockKey newKey,
            List<MemorySegment> newSegments,
            long newPayloadBytes,
            long deadlineNanos,
            BlockCallback newCallback,
            long newTag) {
        kind = newKind;
        key = newKey;
        segments = newSegments;
        payloadBytes = newPayloadBytes;
        callback = newCallback;
        tag = newTag;
        prepared(deadlineNanos);
    }

    /// A lookup.
    void prepare(
            BlockSearch newSearch, long deadlineNanos, BlockCallback newCallback, long newTag) {
        kind = Kind.LOCATE;
        search = newSearch;
        callback = newCallback;
        tag = newTag;
        prepared(deadlineNanos);
    }

    /// A use of several blocks.
    void prepare(List<BlockKey> newKeys, long deadlineNanos) {
        kind = Kind.TOUCH;
        keys = newKeys;
        prepared(deadlineNanos);
    }

    Kind kind() {
        return kind;
    }

    BlockKey key() {
        if (key == null) {
            throw new IllegalStateException("a " + kind + " request has no single key");
        }
        return key;
    }

    List<MemorySegment> segments() {
        return segments;
    }

    /// Of all segments; 0 of a lookup.
    long payloadBytes() {
        return payloadBytes;
    }

    List<BlockKey> keys() {
        return keys;
    }

    BlockSearch search() {
        return search;
    }

    /// I/O thread, after [#finish] returned true.
    void tell(BlockResult result) {
        callback.completed(tag, result);
    }

    @Override
    protected Runnable expiry(boolean inIo) {
        BlockCallback told = callback;
        long toldTag = tag;
        BlockResult result =
                BlockResult.Failed.of(
                        ErrorCode.TIMEOUT,
                        kind
                                + " missed its deadline "
                                + (inIo ? "in the file system" : "in the queue"));
        return () -> {
            try {
                counters.timeouts.increment(); // before the caller can look
            } finally {
                told.completed(toldTag, result);
            }
        };
    }

    @Override
    protected void clear() {
        key = null;
        segments = List.of();
        payloadBytes = 0;
        keys = List.of();
        search = NOTHING;
        callback = NO_CALLBACK;
    }
}
