// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.rank;

import io.kvferry.engine.worker.CachePlace;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EncoderCache;
import io.kvferry.spi.ec.EncoderOutput;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.ProvidedMemory;

import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongFunction;

/// The encoder cache of one rank: one slab of rows. The scheduler decides what lies where in it.
final class EncoderMemory implements EncoderCache, AutoCloseable {
    private final ConcurrentHashMap<String, Entry> entries = new ConcurrentHashMap<>();
    private final ProvidedMemory slab;
    private final MemoryRange.Host range;
    private final int width;
    private final DType dtype;
    private boolean closed;

    private enum State {
        /// Nothing is in the rows.
        PLACED,
        FILLING,
        PUBLISHED
    }

    private record Entry(EncoderOutput output, State state) {
        Entry in(State next) {
            return new Entry(output, next);
        }
    }

    /// @param provider memory that a connector has for it; where there is none, it allocates some
    EncoderMemory(
            int rows, int width, DType dtype, LongFunction<Optional<ProvidedMemory>> provider) {
        this.width = width;
        this.dtype = dtype;
        long bytes = rows * rowBytes();
        slab = SlabMemory.of(bytes, provider);
        range = new MemoryRange.Host(slab.range().segment().asSlice(0, bytes));
    }

    private long rowBytes() {
        return Math.multiplyExact((long) width, dtype.bytes());
    }

    /// The whole slab.
    MemoryRange.Host range() {
        return range;
    }

    /// Rows are reserved for an item that is about to be filled.
    void place(CachePlace place) {
        var output =
                new EncoderOutput(range, place.firstRow() * rowBytes(), place.rows(), width, dtype);
        entries.put(place.hash(), new Entry(output, State.PLACED));
    }

    @Override
    public Optional<EncoderOutput> get(String hash) {
        var entry = entries.get(hash);
        return entry == null || entry.state != State.PUBLISHED
                ? Optional.empty()
                : Optional.of(entry.output);
    }

    @Override
    public EncoderOutput allocate(EcItem item) {
        var hash = item.hash();
        var entry = entries.get(hash);
        if (entry == null) {
            throw new KvFerryException(
                    ErrorCode.NO_MEMORY,
                    "no room is reserved for item " + hash + ", or no longer: was it revoked?");
        }
        var output = entry.output;
        if (item.embeddings() != output.embeddings()
                || item.width() != output.width()
                || item.dtype() != output.dtype()) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    "room for " + item + " is asked for; reserved is " + output);
        }
        if (entry.state != State.PLACED || !entries.replace(hash, entry, entry.in(State.FILLING))) {
            throw new KvFerryException(
                    ErrorCode.ALREADY_ACTIVE,
                    "item " + hash + " is in the encoder cache; discard it first");
        }
        return output;
    }

    @Override
    public void publish(String hash) {
        var entry =
                entries.computeIfPresent(
                        hash,
                        (_, old) -> old.state == State.PLACED ? old : old.in(State.PUBLISHED));
        if (entry == null || entry.state == State.PLACED) {
            throw new KvFerryException(
                    ErrorCode.NOT_FOUND, "item " + hash + " was never allocated, or was revoked");
        }
    }

    @Override
    public void discard(String hash) {
        entries.computeIfPresent(
                hash, (_, old) -> old.state == State.FILLING ? old.in(State.PLACED) : old);
    }

    /// Drops an entry, published or not; the scheduler knows that nothing uses its rows.
    void drop(String hash) {
        entries.remove(hash);
    }

    @Override
    public void close() {
        entries.clear();
        if (!closed) {
            closed = true;
            slab.close();
        }
    }
}
