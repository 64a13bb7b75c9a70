// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EncoderCache;
import io.kvferry.spi.ec.EncoderOutput;
import io.kvferry.spi.memory.DType;

import java.lang.foreign.Arena;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;

/// The encoder cache of one rank. The scheduler decides what is in it; an entry has an arena of its
/// own, which costs some 20 us and saves a cache of unequal items from fragmentation.
final class EncoderMemory implements EncoderCache, AutoCloseable {
    private static final long ALIGNMENT = 64;

    private final ConcurrentHashMap<String, Entry> entries = new ConcurrentHashMap<>();
    private final DType dtype;

    EncoderMemory(DType dtype) {
        this.dtype = dtype;
    }

    private record Entry(EncoderOutput output, Arena arena, boolean published) {}

    @Override
    public Optional<EncoderOutput> get(String hash) {
        var entry = entries.get(hash);
        return entry == null || !entry.published ? Optional.empty() : Optional.of(entry.output);
    }

    @Override
    public EncoderOutput allocate(EcItem item) {
        var arena = Arena.ofShared();
        long bytes =
                Math.multiplyExact(
                        Math.multiplyExact((long) item.embeddings(), item.width()), dtype.bytes());
        var output =
                new EncoderOutput(
                        arena.allocate(bytes, ALIGNMENT), item.embeddings(), item.width(), dtype);
        if (entries.putIfAbsent(item.hash(), new Entry(output, arena, false)) != null) {
            arena.close();
            throw new KvFerryException(
                    ErrorCode.ALREADY_ACTIVE,
                    "item " + item.hash() + " is in the encoder cache; discard it first");
        }
        return output;
    }

    @Override
    public void publish(String hash) {
        var entry =
                entries.computeIfPresent(hash, (_, old) -> new Entry(old.output, old.arena, true));
        if (entry == null) {
            throw new KvFerryException(
                    ErrorCode.NOT_FOUND, "item " + hash + " was never allocated, or was revoked");
        }
    }

    @Override
    public void discard(String hash) {
        var entry = entries.get(hash);
        if (entry != null && !entry.published && entries.remove(hash, entry)) {
            entry.arena.close();
        }
    }

    /// Drops an entry, published or not; the scheduler knows that nothing uses it.
    void drop(String hash) {
        var entry = entries.remove(hash);
        if (entry != null) {
            entry.arena.close();
        }
    }

    @Override
    public void close() {
        entries.keySet().forEach(this::drop);
    }
}
