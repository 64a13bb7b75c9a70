// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.samehost;

import io.kvferry.backend.mooncake.te.Access;
import io.kvferry.backend.mooncake.te.Extents;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.crossmemory.PeerProcess;
import io.kvferry.toolkit.crossmemory.ProcessIdentity;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Optional;

/// The page of shared memory through which an engine and its peers on the same host agree on who
/// may copy where.
///
/// Layout, native byte order (all parties run on one host):
///
/// - at 0 a magic number, at 8 the version, at 16 the incarnation as 32 ASCII digits, at 64 a
///   counter that changes whenever the regions change
/// - at 128 the owner's process (id, start, namespace; id 0: its own memory may not be copied), the
///   address of its probe, where it keeps a copy of the incarnation, and the key of its memory
/// - the regions: number (0: free), address, length, whose highest bit means [Access#GRANTED] and
///   the next [Access#KEYED], offset in its file, number of that file. Every opened region gets a
///   new number, positive if users map the file, negative for the owner's own memory, which users
///   copy by `ProcessVm`
/// - the open capabilities: token (0: free), the first of its extents and their number
/// - one word per user mark: 0 when idle, otherwise a number that is new for each copy, and beside
///   it the grant of the copy
/// - the extents, as address and length
///
/// A user announces a copy in its word, then checks that region and capability are open, copies,
/// and clears the word. The owner first closes a region or a capability and then waits for every
/// announced copy to end. Either the user sees that it is closed, or the owner sees the user's
/// word, so no copy under a closed capability goes unnoticed.
public final class ControlPage {
    static final int REGIONS = 4096;
    static final int GRANTS = 4096;
    static final int USERS = 64;
    static final int MARKS = 16;

    /// Of all open grants together.
    static final int EXTENTS = 1 << 17;

    /// A mark under no grant, or whose grant is not known yet.
    static final int ANY_GRANT = -1;

    private static final long EXTENTS_AT = 1 << 19;
    static final long BYTES = EXTENTS_AT + EXTENTS * 16L;

    private static final long MAGIC = 0x4B56_4645_5252_5931L;
    private static final long VERSION = 6;

    /// In the length of a region: peers write there under a grant only.
    private static final long GRANTED = Long.MIN_VALUE;

    /// The same: peers that name the key of the memory read and write it.
    private static final long KEYED = 1L << 62;

    private static final long INCARNATION_AT = 16;
    private static final long CHANGES_AT = 64;
    private static final long OWNER_AT = 128;
    private static final long KEY_AT = OWNER_AT + 32;
    private static final long REGIONS_AT = 4096;
    private static final long REGION_BYTES = 40;
    private static final long GRANTS_AT = REGIONS_AT + REGIONS * REGION_BYTES;
    private static final long WORDS_AT = GRANTS_AT + GRANTS * 24L;

    private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();

    private final MemorySegment page;

    private ControlPage(MemorySegment page) {
        this.page = page;
    }

    /// A page that a peer maps.
    ///
    /// @param owner empty where no peer may copy to and from memory that is not in files
    /// @param probe where this process keeps the incarnation
    static ControlPage create(
            FileChannel file,
            String incarnation,
            Optional<ProcessIdentity> owner,
            MemorySegment probe,
            Arena arena)
            throws IOException {
        // Written before it is mapped: touching a page that a full folder has no room for would
        // throw InternalError, or kill the process, at any later time.
        SharedFolder.occupy(file, BYTES);
        MemorySegment page = file.map(FileChannel.MapMode.READ_WRITE, 0, BYTES, arena);
        MemorySegment.copy(
                MemorySegment.ofArray(incarnation.getBytes(StandardCharsets.US_ASCII)),
                0,
                page,
                INCARNATION_AT,
                32);
        page.set(ValueLayout.JAVA_LONG, 8, VERSION);
        if (owner.isPresent()) {
            page.set(ValueLayout.JAVA_LONG, OWNER_AT, owner.get().pid());
            page.set(ValueLayout.JAVA_LONG, OWNER_AT + 8, owner.get().startTicks());
            page.set(ValueLayout.JAVA_LONG, OWNER_AT + 16, owner.get().pidNamespace());
            page.set(ValueLayout.JAVA_LONG, OWNER_AT + 24, probe.address());
        }
        LONG.setVolatile(page, 0L, MAGIC);
        return new ControlPage(page);
    }

    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] when the file is something else
    static ControlPage open(FileChannel file, Path path, String incarnation, Arena arena)
            throws IOException {
        if (file.size() != BYTES) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE, path + " is no control page of this version");
        }
        MemorySegment page = file.map(FileChannel.MapMode.READ_WRITE, 0, BYTES, arena);
        String found =
                new String(
                        page.asSlice(INCARNATION_AT, 32).toArray(ValueLayout.JAVA_BYTE),
                        StandardCharsets.US_ASCII);
        if ((long) LONG.getVolatile(page, 0L) != MAGIC
                || page.get(ValueLayout.JAVA_LONG, 8) != VERSION
                || !found.equals(incarnation)) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE, path + " is not the control page of " + incarnation);
        }
        return new ControlPage(page);
    }

    /// Tells users that the owner is gone.
    void close() {
        setVolatile(0, 0);
    }

    public boolean isOpen() {
        return volatileAt(0) == MAGIC;
    }

    long changes() {
        return volatileAt(CHANGES_AT);
    }

    /// What peers name who use memory of [Access#KEYED].
    long memoryKey() {
        return volatileAt(KEY_AT);
    }

    void memoryKey(long key) {
        setVolatile(KEY_AT, key);
    }

    // ---- the owner as a process

    /// Empty when it does not let its own memory be copied.
    Optional<ProcessIdentity> owner() {
        long pid = page.get(ValueLayout.JAVA_LONG, OWNER_AT);
        return pid > 0 && pid <= Integer.MAX_VALUE
                ? Optional.of(
                        new ProcessIdentity(
                                (int) pid,
                                page.get(ValueLayout.JAVA_LONG, OWNER_AT + 8),
                                page.get(ValueLayout.JAVA_LONG, OWNER_AT + 16)))
                : Optional.empty();
    }

    /// The owner as a process whose memory the kernel copies for this one.
    ///
    /// @param incarnation which it keeps at its probe
    /// @throws KvFerryException [ErrorCode#UNAVAILABLE] with the reason
    PeerProcess attachOwner(String incarnation) {
        var identity =
                owner().orElseThrow(() ->
                        new KvFerryException(
                                ErrorCode.UNAVAILABLE, "the peer does not offer its own memory"));
        return PeerProcess.attach(
                identity,
                page.get(ValueLayout.JAVA_LONG, OWNER_AT + 24),
                incarnation.getBytes(StandardCharsets.US_ASCII));
    }

    // ---- regions

    private static long regionAt(int slot) {
        return REGIONS_AT + slot * REGION_BYTES;
    }

    long regionNumber(int slot) {
        return volatileAt(regionAt(slot));
    }

    long regionAddress(int slot) {
        return volatileAt(regionAt(slot) + 8);
    }

    long regionBytes(int slot) {
        return volatileAt(regionAt(slot) + 16) & ~(GRANTED | KEYED);
    }

    Access regionAccess(int slot) {
        long bytes = volatileAt(regionAt(slot) + 16);
        if ((bytes & KEYED) != 0) {
            return Access.KEYED;
        }
        return (bytes & GRANTED) != 0 ? Access.GRANTED : Access.OPEN;
    }

    /// Offset of the region in its file.
    long regionOffset(int slot) {
        return volatileAt(regionAt(slot) + 24);
    }

    /// Number of the file that the region is in.
    long regionFile(int slot) {
        return volatileAt(regionAt(slot) + 32);
    }

    /// A region that is the whole of the file of its number, or is in none.
    void openRegion(int slot, long number, long address, long bytes, Access access) {
        openRegion(slot, number, number, 0, address, bytes, access);
    }

    /// @param number never used before, by which a user that has read the slot tells this region
    ///   from the next one in it
    void openRegion(
            int slot,
            long number,
            long file,
            long offset,
            long address,
            long bytes,
            Access access) {
        setVolatile(regionAt(slot) + 8, address);
        long flag =
                switch (access) {
                    case OPEN -> 0;
                    case KEYED -> KEYED;
                    case GRANTED -> GRANTED;
                };
        setVolatile(regionAt(slot) + 16, bytes | flag);
        setVolatile(regionAt(slot) + 24, offset);
        setVolatile(regionAt(slot) + 32, file);
        setVolatile(regionAt(slot), number);
        changed();
    }

    void closeRegion(int slot) {
        setVolatile(regionAt(slot), 0);
        changed();
    }

    /// In one step, so that of two changes at a time neither takes the counter back.
    private void changed() {
        var _ = (long) LONG.getAndAdd(page, CHANGES_AT, 1L);
    }

    // ---- capabilities

    /// @param first of as many free extents as the grant has
    void openGrant(int slot, long token, Extents extents, int first) {
        for (int i = 0; i < extents.size(); i++) {
            page.set(ValueLayout.JAVA_LONG, extentAt(first + i), extents.address(i));
            page.set(ValueLayout.JAVA_LONG, extentAt(first + i) + 8, extents.bytes(i));
        }
        setVolatile(GRANTS_AT + slot * 24L + 8, first);
        setVolatile(GRANTS_AT + slot * 24L + 16, extents.size());
        setVolatile(GRANTS_AT + slot * 24L, token);
    }

    int firstExtent(int slot) {
        return (int) volatileAt(GRANTS_AT + slot * 24L + 8);
    }

    private static long extentAt(int index) {
        return EXTENTS_AT + index * 16L;
    }

    void closeGrant(int slot) {
        setVolatile(GRANTS_AT + slot * 24L, 0);
    }

    /// Whether one extent of the grant holds all of a range. Called while the copy is announced, so
    /// that the extents of an open grant stay what they are.
    public boolean grantCovers(int slot, long token, long address, long bytes) {
        long first = volatileAt(GRANTS_AT + slot * 24L + 8);
        long count = volatileAt(GRANTS_AT + slot * 24L + 16);
        if (volatileAt(GRANTS_AT + slot * 24L) != token
                || first < 0
                || count < 1
                || first + count > EXTENTS) {
            return false;
        }
        int low = (int) first;
        int high = (int) (first + count) - 1;
        while (low < high) { // the last one that begins at or below the address, if any does
            int middle = (low + high + 1) >>> 1;
            if (Long.compareUnsigned(page.get(ValueLayout.JAVA_LONG, extentAt(middle)), address)
                    <= 0) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        long offset = address - page.get(ValueLayout.JAVA_LONG, extentAt(low));
        long length = page.get(ValueLayout.JAVA_LONG, extentAt(low) + 8);
        return Long.compareUnsigned(offset, length) < 0
                && Long.compareUnsigned(bytes, length - offset) <= 0;
    }

    public int findGrant(long token) {
        for (int slot = 0; slot < GRANTS; slot++) {
            if (volatileAt(GRANTS_AT + slot * 24L) == token) {
                return slot;
            }
        }
        return -1;
    }

    // ---- who is copying

    long word(int user, int mark) {
        return volatileAt(wordAt(user, mark));
    }

    void setWord(int user, int mark, long value) {
        setVolatile(wordAt(user, mark), value);
    }

    /// Slot of the only grant that a mark copies under, or [#ANY_GRANT].
    int markGrant(int user, int mark) {
        return (int) volatileAt(wordAt(user, mark) + 8) - 1;
    }

    /// Before the copy is announced, or while it is.
    void setMarkGrant(int user, int mark, int slot) {
        setVolatile(wordAt(user, mark) + 8, slot + 1L);
    }

    private static long wordAt(int user, int mark) {
        return WORDS_AT + (user * MARKS + mark) * 64L;
    }

    private long volatileAt(long offset) {
        return (long) LONG.getVolatile(page, offset);
    }

    private void setVolatile(long offset, long value) {
        LONG.setVolatile(page, offset, value);
    }
}
