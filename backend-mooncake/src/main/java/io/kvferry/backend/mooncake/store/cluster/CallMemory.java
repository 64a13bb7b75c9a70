// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.toolkit.disk.NativeCrc;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;

/// What one call into the library reads and writes: keys as C strings, values in staging memory,
/// the tables that point to them, and the results. A call that hangs keeps all of it, so none of it
/// is memory of an engine.
///
/// A value is followed by a [ValueTrailer], which shows whether the bytes read are those that were
/// put. Values shared with users other than kvferry have none.
///
/// A call that returns TRANSFER_FAIL may leave a transfer running that still reads or writes the
/// memory of its values: Mooncake waits for a transfer for a minute, then returns this code. Such
/// memory is neither reused nor freed while the process lives.
///
/// Threading: the owner of the [CallThread].
final class CallMemory {
    /// Keys of one call.
    static final int MOST_KEYS = 256;

    /// Of staging memory, where no single object needs more.
    static final long STAGING = 16L << 20;

    /// A call that fails earlier than this has not timed out, so a transfer in one piece has ended.
    /// Many calls fail like this when an owner is gone.
    static final Duration ENDED = Duration.ofSeconds(1);

    /// Mooncake moves a value in pieces of just under 16 MiB, and answers when the first has
    /// failed.
    private static final long ONE_PIECE = 15L << 20;

    /// Of memory that is left to transfers, in the process; with more, no value finds memory.
    private static final long MOST_LEFT = 2L << 30;

    private static final Logger LOG = LoggerFactory.getLogger(CallMemory.class);
    private static final AtomicLong LEFT = new AtomicLong();

    private static final long TEXT = 256 << 10;
    private static final int MOST_SEGMENTS = 16;
    private static final long ALIGNMENT = 64;
    private static final long PAGE = 4096;

    private final Arena arena = Arena.ofShared();
    private final MemorySegment keys = arena.allocate(ADDRESS, MOST_KEYS);
    private final MemorySegment buffers = arena.allocate(ADDRESS, MOST_KEYS);
    private final MemorySegment sizes = arena.allocate(JAVA_LONG, MOST_KEYS);
    private final MemorySegment results = arena.allocate(JAVA_LONG, MOST_KEYS);
    private final MemorySegment config = arena.allocate(StoreLibrary.REPLICATE);
    private final MemorySegment segments = arena.allocate(ADDRESS, MOST_SEGMENTS);
    private final MemorySegment text = arena.allocate(TEXT);
    private final int[] positions = new int[MOST_KEYS];
    private final int[] keyBytes = new int[MOST_KEYS];
    private final NativeCrc crc = new NativeCrc();
    private int count;
    private long textEnd;
    private long valueEnd;
    private @Nullable Arena stagingArena;
    private MemorySegment staging = MemorySegment.NULL;
    private boolean stagingIsRegistered;
    private @Nullable Arena largeArena;
    private MemorySegment large = MemorySegment.NULL;
    private boolean largeIsRegistered;
    private boolean spoiled;
    private boolean sealed = true;

    /// Forgets the call before, and frees what only that one needed.
    void reset() {
        if (spoiled) {
            spoiled = false;
            leave();
        }
        count = 0;
        textEnd = 0;
        valueEnd = 0;
        Arena last = largeArena;
        if (last != null) {
            largeArena = null;
            large = MemorySegment.NULL;
            last.close();
        }
    }

    /// Leaves the memory of the values to a transfer that may still use it; it stays registered.
    private void leave() {
        MemorySegment left;
        if (large.byteSize() > 0) {
            left = large;
            large = MemorySegment.NULL;
            largeArena = null;
            largeIsRegistered = false;
        } else {
            left = staging;
            staging = MemorySegment.NULL;
            stagingArena = null;
            stagingIsRegistered = false;
        }
        LOG.warn(
                "a transfer of Mooncake's store failed and may still run: {} bytes of memory are"
                        + " left to it until the process ends, {} bytes in all",
                left.byteSize(),
                LEFT.addAndGet(left.byteSize()));
    }

    /// Checks whether a call that has returned may have left a transfer running. Called on the
    /// library's thread, so that it also covers calls whose caller has timed out.
    ///
    /// @param code of the whole call
    /// @param longs whether the results are longs
    /// @param took duration of the call
    void looksForTransfers(int code, boolean longs, Duration took) {
        int failed = StoreCode.TRANSFER_FAIL.number();
        for (int i = 0; i < count; i++) {
            boolean mayRun =
                    took.compareTo(ENDED) >= 0 || sizes.getAtIndex(JAVA_LONG, i) > ONE_PIECE;
            spoiled |=
                    mayRun && (code == failed || (longs ? longResult(i) : intResult(i)) == failed);
        }
    }

    /// Whether the values of the next call carry a [ValueTrailer]. Before the keys are added.
    CallMemory sealing(boolean values) {
        sealed = values;
        return this;
    }

    private long trailer() {
        return sealed ? ValueTrailer.BYTES : 0;
    }

    /// Where the values of the next call up to [#STAGING] stand; 0 when there is no memory yet.
    long stagingAddress() {
        return staging.address();
    }

    /// Memory that this process has left to transfers.
    static long leftBytes() {
        return LEFT.get();
    }

    /// Keys of the call.
    int count() {
        return count;
    }

    /// Which key of the caller's batch a key of the call is.
    int position(int index) {
        return positions[index];
    }

    /// Adds a key.
    ///
    /// @param position in the caller's batch
    /// @return false when there is no room. A key that does not fit into an empty call never fits
    boolean add(String key, int position) {
        return add(key.getBytes(StandardCharsets.UTF_8), position);
    }

    private boolean add(byte[] key, int position) {
        if (!hasRoom(key)) {
            return false;
        }
        keys.setAtIndex(ADDRESS, count, string(key));
        keyBytes[count] = key.length;
        positions[count] = position;
        count++;
        return true;
    }

    private boolean hasRoom(byte[] key) {
        return count < MOST_KEYS && textEnd + key.length + 1 <= TEXT;
    }

    /// Writes a string that is not one of the keys, for calls that take one; null if it is too
    /// long.
    @Nullable MemorySegment text(String value) {
        byte[] utf8 = value.getBytes(StandardCharsets.UTF_8);
        return textEnd + utf8.length + 1 > TEXT ? null : string(utf8);
    }

    private MemorySegment string(byte[] utf8) {
        MemorySegment place = text.asSlice(textEnd, utf8.length + 1L);
        MemorySegment.copy(MemorySegment.ofArray(utf8), 0, place, 0, utf8.length);
        place.set(JAVA_BYTE, utf8.length, (byte) 0);
        textEnd += place.byteSize();
        return place;
    }

    /// Adds a key with room for its value.
    ///
    /// @param bytes of the value, without its trailer
    /// @return as [#add(String, int)]
    /// @throws OutOfMemoryError when a value finds no memory
    boolean add(String key, int position, long bytes) {
        long needed = bytes + trailer();
        byte[] utf8 = key.getBytes(StandardCharsets.UTF_8);
        if (!hasRoom(utf8)) {
            return false;
        }
        MemorySegment place;
        if (needed > STAGING) {
            if (count > 0) {
                return false;
            }
            requireLittleLeft();
            Arena own = Arena.ofShared();
            largeArena = own;
            large = own.allocate(needed, PAGE); // without memory, reset() ends the arena
            place = large;
        } else {
            if (large.byteSize() > 0 || valueEnd + needed > STAGING) {
                return false;
            }
            place = staging().asSlice(valueEnd, needed);
        }
        add(utf8, position);
        valueEnd += (needed + ALIGNMENT - 1) & -ALIGNMENT;
        buffers.setAtIndex(ADDRESS, count - 1, place);
        sizes.setAtIndex(JAVA_LONG, count - 1, needed);
        return true;
    }

    private MemorySegment staging() {
        if (staging.byteSize() == 0) {
            requireLittleLeft();
            Arena own = stagingArena;
            if (own == null) {
                own = Arena.ofShared();
                stagingArena = own;
            }
            staging = own.allocate(STAGING, PAGE);
        }
        return staging;
    }

    private static void requireLittleLeft() {
        if (LEFT.get() >= MOST_LEFT) {
            throw new OutOfMemoryError(LEFT.get() + " bytes are left to transfers that failed");
        }
    }

    private MemorySegment value(int index) {
        long address = buffers.getAtIndex(JAVA_LONG, index);
        MemorySegment memory = large.byteSize() > 0 ? large : staging;
        return memory.asSlice(address - memory.address(), sizes.getAtIndex(JAVA_LONG, index));
    }

    /// Gathers the value of the last key from its pieces.
    void gather(StoreBatch batch, int key) {
        MemorySegment value = value(count - 1);
        long at = 0;
        for (int b = batch.first(key); b < batch.end(key); b++) {
            long length = batch.length(b);
            MemorySegment.copy(batch.memory(b), batch.offset(b), value, at, length);
            at += length;
        }
        if (sealed) {
            ValueTrailer.write(value, at, sum(count - 1, value, at));
        }
    }

    /// Scatters a value that was read into the pieces of its key.
    ///
    /// @param read bytes that the library brought, with the trailer
    /// @return bytes of the value, or -1 when they are not those that were put under this key
    long scatter(StoreBatch batch, int index, long read) {
        MemorySegment value = value(index);
        long bytes = read - trailer();
        if (bytes < 0
                || read > value.byteSize()
                || (sealed && !ValueTrailer.matches(value, bytes, sum(index, value, bytes)))) {
            return -1;
        }
        int key = positions[index];
        long at = 0;
        for (int b = batch.first(key); b < batch.end(key) && at < bytes; b++) {
            long length = Math.min(batch.length(b), bytes - at);
            MemorySegment.copy(value, at, batch.memory(b), batch.offset(b), length);
            at += length;
        }
        return bytes;
    }

    private int sum(int index, MemorySegment value, long bytes) {
        long start = keys.getAtIndex(JAVA_LONG, index) - text.address();
        return ValueTrailer.checksum(crc, text.asSlice(start, keyBytes[index]), value, bytes);
    }

    /// Writes the options of puts in the library's form. Names of segments that do not fit are
    /// dropped. Must be called before the keys are added.
    MemorySegment config(PutOptions options) {
        config.set(JAVA_LONG, 0, options.replicas());
        config.set(JAVA_INT, 8, options.softPin().isZero() ? 0 : 1);
        config.set(JAVA_INT, 12, options.hardPin() ? 1 : 0);
        config.set(ADDRESS, 16, segments);
        config.set(JAVA_LONG, 24, names(options.preferredSegments()));
        return config;
    }

    private long names(List<String> preferred) {
        long named = 0;
        for (String segment : preferred) {
            MemorySegment place = named == MOST_SEGMENTS ? null : text(segment);
            if (place != null) {
                segments.setAtIndex(ADDRESS, named, place);
                named++;
            }
        }
        return named;
    }

    /// Lets the library use the staging memory, as far as it cannot yet.
    ///
    /// @return 0 or a code
    int register(StoreLibrary library, MemorySegment store) {
        if (large.byteSize() > 0) {
            int code = library.registerBuffer(store, large);
            largeIsRegistered = code == 0;
            return code;
        }
        if (!stagingIsRegistered) {
            int code = library.registerBuffer(store, staging);
            stagingIsRegistered = code == 0;
            return code;
        }
        return 0;
    }

    /// After the call; what a transfer may still use stays registered.
    void unregister(StoreLibrary library, MemorySegment store) {
        if (largeIsRegistered && !spoiled) {
            largeIsRegistered = false;
            library.unregisterBuffer(store, large);
        }
    }

    MemorySegment keys() {
        return keys;
    }

    MemorySegment key(int index) {
        return keys.getAtIndex(ADDRESS, index);
    }

    MemorySegment buffers() {
        return buffers;
    }

    MemorySegment sizes() {
        return sizes;
    }

    MemorySegment results() {
        return results;
    }

    int intResult(int index) {
        return results.getAtIndex(JAVA_INT, index);
    }

    long longResult(int index) {
        return results.getAtIndex(JAVA_LONG, index);
    }

    /// Sets all results to a code, so that a result which the library does not write is not left
    /// over from the previous call.
    void presetInts(int code) {
        for (int i = 0; i < count; i++) {
            results.setAtIndex(JAVA_INT, i, code);
        }
    }

    void presetLongs(long code) {
        for (int i = 0; i < count; i++) {
            results.setAtIndex(JAVA_LONG, i, code);
        }
    }

    /// The memory goes, but for what was left to transfers; no call uses it any more.
    void free() {
        reset();
        Arena last = stagingArena;
        if (last != null) {
            stagingArena = null;
            staging = MemorySegment.NULL;
            last.close();
        }
        arena.close();
    }
}
