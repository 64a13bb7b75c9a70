// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.ec;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EncoderCache;
import io.kvferry.spi.ec.EncoderOutput;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.ProvidedMemory;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.stream.Collectors;

/// The encoder cache of one rank: one slab with items in ranges of it and poison in free space.
/// Calls that violate the contract are refused, as an engine does, and reported to the test in its
/// next step.
///
/// Threading: [EncoderCache]'s methods from any thread, all else on the test's.
final class EcSlab implements EncoderCache, AutoCloseable {
    /// Bytes of the slab.
    static final long BYTES = 512 * 1024;

    private static final long PAGE = 4096;
    private static final long GUARD = 64;
    private static final byte POISON = (byte) 0xB5;
    private static final byte UNFILLED = (byte) 0xEE;

    private final Arena arena = Arena.ofShared();
    private final MemorySegment poison = arena.allocate(BYTES).fill(POISON);
    private final Map<String, Entry> entries = new ConcurrentHashMap<>();
    private final ConcurrentLinkedQueue<String> complaints = new ConcurrentLinkedQueue<>();

    /// Lengths with the guard behind each, by offset.
    private final TreeMap<Long, Long> taken = new TreeMap<>();

    private Optional<ProvidedMemory> provided = Optional.empty();
    private MemoryRange.Host memory = new MemoryRange.Host(arena.allocate(BYTES, PAGE));

    private enum State {
        RESERVED,
        FILLING,
        PUBLISHED
    }

    private record Entry(EncoderOutput output, State state) {
        Entry in(State next) {
            return new Entry(output, next);
        }
    }

    EcSlab() {
        memory.segment().fill(POISON);
    }

    /// The slab is to lie in memory that the connector provides.
    void lieIn(ProvidedMemory given) {
        provided = Optional.of(given);
        var segment = given.range().segment();
        assertThat(segment.byteSize()).as("bytes provided").isGreaterThanOrEqualTo(BYTES);
        assertThat(segment.address() % PAGE).as("alignment of provided memory").isZero();
        assertThat(segment.mismatch(arena.allocate(segment.byteSize())))
                .as("first byte of provided memory that is not zero")
                .isEqualTo(-1);
        memory = new MemoryRange.Host(segment.asSlice(0, BYTES));
        memory.segment().fill(POISON);
    }

    MemoryRange.Host memory() {
        return memory;
    }

    boolean isCached(String hash) {
        return entries.containsKey(hash);
    }

    private static long bytes(EcItem item) {
        return (long) item.embeddings() * item.width() * item.dtype().bytes();
    }

    /// Room for an item that is going to be loaded or encoded.
    void reserve(EcItem item) {
        long row = (long) item.width() * item.dtype().bytes();
        long at = 0;
        for (var range : taken.entrySet()) {
            at = (at + row - 1) / row * row;
            if (at + bytes(item) + GUARD <= range.getKey()) {
                break;
            }
            at = range.getKey() + range.getValue();
        }
        at = (at + row - 1) / row * row;
        if (at + bytes(item) + GUARD > BYTES) {
            throw new IllegalStateException("the harness's encoder cache is too small: " + item);
        }
        taken.put(at, bytes(item) + GUARD);
        var output = new EncoderOutput(memory, at, item.embeddings(), item.width(), item.dtype());
        entries.put(item.hash(), new Entry(output, State.RESERVED));
    }

    /// Nothing has a right on the item any more.
    void release(String hash) {
        var entry = entries.remove(hash);
        if (entry != null) {
            entry.output.data().fill(POISON);
            taken.remove(entry.output.offset());
        }
    }

    /// [#release], unless a load left its room behind.
    void releaseFailed(String hash) {
        var entry = entries.get(hash);
        if (entry != null && entry.state != State.FILLING) {
            release(hash);
        }
    }

    /// Nothing has a right on any item any more.
    void releaseAll() {
        entries.clear();
        taken.clear();
        memory.segment().fill(POISON);
    }

    /// Items with room that are neither published nor discarded.
    Set<String> unpublished() {
        return entries.entrySet().stream()
                .filter(entry -> entry.getValue().state == State.FILLING)
                .map(Map.Entry::getKey)
                .collect(Collectors.toSet());
    }

    /// Fails when something was refused since the last call, or written where nothing belongs.
    void check() {
        var refused = new ArrayList<String>();
        for (var next = complaints.poll(); next != null; next = complaints.poll()) {
            refused.add(next);
        }
        assertThat(refused).as("calls on the encoder cache that break its contract").isEmpty();
        long free = 0;
        for (var range : taken.entrySet()) {
            mustBePoison(free, range.getKey());
            free = range.getKey() + range.getValue();
            mustBePoison(free - GUARD, free);
        }
        mustBePoison(free, BYTES);
    }

    private void mustBePoison(long from, long to) {
        long wrong = MemorySegment.mismatch(memory.segment(), from, to, poison, from, to);
        if (wrong >= 0) {
            throw new AssertionError(
                    "byte "
                            + (from + wrong)
                            + " of the encoder cache was written, which belongs to no item; items are at "
                            + taken.keySet());
        }
    }

    @Override
    public Optional<EncoderOutput> get(String hash) {
        return Optional.ofNullable(entries.get(hash))
                .filter(entry -> entry.state == State.PUBLISHED)
                .map(Entry::output);
    }

    @Override
    public EncoderOutput allocate(EcItem item) {
        var entry = entries.get(item.hash());
        if (entry == null) {
            throw refuse(ErrorCode.NO_MEMORY, "allocate of an item that nobody loads: " + item);
        }
        if (entry.output.bytes() != bytes(item)) {
            throw refuse(ErrorCode.INVALID_REQUEST, "allocate of another shape: " + item);
        }
        if (entry.state != State.RESERVED
                || !entries.replace(item.hash(), entry, entry.in(State.FILLING))) {
            throw refuse(ErrorCode.ALREADY_ACTIVE, "allocate of an item that has room: " + item);
        }
        entry.output.data().fill(UNFILLED);
        return entry.output;
    }

    @Override
    public void publish(String hash) {
        move(hash, State.PUBLISHED, "publish");
    }

    @Override
    public void discard(String hash) {
        move(hash, State.RESERVED, "discard");
    }

    private void move(String hash, State to, String what) {
        var entry = entries.get(hash);
        if (entry == null
                || entry.state != State.FILLING
                || !entries.replace(hash, entry, entry.in(to))) {
            throw refuse(ErrorCode.NOT_FOUND, what + " of item " + hash + ", which has no room");
        }
    }

    private KvFerryException refuse(ErrorCode code, String message) {
        complaints.add(message);
        return new KvFerryException(code, message);
    }

    /// Frees the memory, last of all. What a connector provided must still be there.
    @Override
    public void close() {
        try {
            check();
            memory.segment().fill((byte) 0);
        } catch (IllegalStateException e) {
            throw new AssertionError("the memory that the connector provided is gone too soon", e);
        } finally {
            provided.ifPresent(ProvidedMemory::close);
            arena.close();
        }
    }

    static List<EcSlab> ofRanks(int ranks) {
        var all = new ArrayList<EcSlab>();
        for (int rank = 0; rank < ranks; rank++) {
            all.add(new EcSlab());
        }
        return List.copyOf(all);
    }
}
