// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import org.jspecify.annotations.Nullable;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.zip.CRC32C;

/// Blocks of a transfer, some after the other, as the runs of memory in which they lie, and what
/// reads, writes and checks them. What it needs of Java's heap it keeps: a transfer that goes
/// through the same memory as one before allocates nothing for its pieces. It does for scattered
/// blocks of a segment over 1 GiB, and where runs under 64 KiB are gathered to go over TCP.
///
/// Threading: one thread at a time.
final class PieceViews {
    /// Runs of that size go over a connection by a call each; shorter ones are gathered, for which
    /// Java allocates.
    private static final long LONE_RUN = 64 << 10;

    private static final int MOST_IDLE = 32;

    /// In all that are idle, about 100 bytes each: 64 parts of 512 runs, four times.
    static final int MOST_IDLE_VIEWS = 4 * 64 * 512;

    /// Of the memory of each part of the last transfers.
    private final List<PartViews> byPart = new ArrayList<>();

    private final CRC32C crc = new CRC32C();
    private ByteBuffer[] runs = new ByteBuffer[8];
    private int[] starts = new int[8];
    private long[] addresses = new long[8];
    private int count;
    private long bytes;

    /// Those that no transfer uses.
    static final class Pool {
        private final ConcurrentLinkedQueue<PieceViews> idle = new ConcurrentLinkedQueue<>();
        private final AtomicInteger size = new AtomicInteger();
        private final AtomicLong viewsIdle = new AtomicLong();

        PieceViews take() {
            var views = idle.poll();
            if (views == null) {
                return new PieceViews();
            }
            size.decrementAndGet();
            viewsIdle.addAndGet(-views.room());
            return views;
        }

        void give(PieceViews views) {
            long room = views.room();
            boolean few = size.incrementAndGet() <= MOST_IDLE;
            boolean kept = false;
            try {
                kept = viewsIdle.addAndGet(room) <= MOST_IDLE_VIEWS && few && idle.add(views);
            } finally {
                if (!kept) {
                    size.decrementAndGet();
                    viewsIdle.addAndGet(-room);
                }
            }
        }

        /// Views that are kept, at most [#MOST_IDLE_VIEWS].
        long viewsIdle() {
            return viewsIdle.get();
        }
    }

    /// Views of one segment. A buffer covers at most 2 GiB, so a view of another part of a larger
    /// segment needs a new buffer.
    private static final class PartViews {
        private static final long WINDOW = Placement.MAX_BLOCK_BYTES;

        private MemorySegment segment;
        private @Nullable ByteBuffer[] slots = new @Nullable ByteBuffer[4];
        private long[] bases = new long[4];

        PartViews(MemorySegment segment) {
            this.segment = segment;
        }

        /// The same memory, and as alive.
        private boolean isOf(MemorySegment other) {
            return segment.equals(other) // which compares the place alone
                    && segment.byteSize() == other.byteSize()
                    && segment.scope().equals(other.scope());
        }

        void use(MemorySegment other) {
            if (!isOf(other)) {
                segment = other;
                Arrays.fill(slots, null);
            }
        }

        ByteBuffer view(int slot, long offset, long length) {
            if (slot >= slots.length) {
                bases = Arrays.copyOf(bases, 2 * slot);
                slots = Arrays.copyOf(slots, 2 * slot); // last, as its length counts
            }
            long base = offset - offset % WINDOW;
            var view = slots[slot];
            if (view == null || bases[slot] != base) {
                long size = Math.min(segment.byteSize() - base, 2 * WINDOW - 1);
                view = segment.asSlice(base, size).asByteBuffer();
                slots[slot] = view;
                bases[slot] = base;
            }
            int start = (int) (offset - base);
            return view.limit(start + (int) length).position(start);
        }
    }

    /// Goes to the `count` blocks of a part from position `first` on; adjacent ones are one run.
    ///
    /// @param index of the part in its placement
    void show(int index, Placement.Part part, int first, int blocks) {
        while (byPart.size() <= index) {
            byPart.add(new PartViews(part.segment()));
        }
        var views = byPart.get(index);
        views.use(part.segment());
        count = 0;
        bytes = 0;
        int end = first + blocks;
        for (int at = first; at < end; ) {
            int adjacent = part.adjacent(at, end);
            long length = adjacent * part.blockBytes();
            if (count == runs.length) {
                starts = Arrays.copyOf(starts, 2 * count);
                addresses = Arrays.copyOf(addresses, 2 * count);
                runs = Arrays.copyOf(runs, 2 * count); // last, as its length counts
            }
            long offset = part.blocks()[at] * part.strideBytes();
            var view = views.view(count, offset, length);
            addresses[count] = part.segment().address() + offset;
            runs[count] = view;
            starts[count] = view.position();
            count++;
            bytes += length;
            at += adjacent;
        }
    }

    /// Views that it may have. Needs no memory.
    private long room() {
        long room = 0;
        for (int i = 0; i < byPart.size(); i++) {
            room += byPart.get(i).slots.length;
        }
        return room;
    }

    /// Runs of memory.
    int count() {
        return count;
    }

    /// Of all runs.
    long bytes() {
        return bytes;
    }

    /// Of native memory.
    long address(int run) {
        return addresses[run];
    }

    long length(int run) {
        return runs[run].limit() - (long) starts[run];
    }

    /// Begins a checksum.
    void resetSum() {
        crc.reset();
    }

    /// Adds what is shown to the checksum.
    void sum() {
        for (int run = 0; run < count; run++) {
            crc.update(runs[run].position(starts[run]));
            runs[run].position(starts[run]);
        }
    }

    /// The checksum since it was begun.
    int crc() {
        return (int) crc.getValue();
    }

    void write(SocketChannel to) throws IOException {
        for (int run = 0; run < count; ) {
            if (length(run) >= LONE_RUN) {
                HostWire.writeFully(to, runs[run++]);
            } else {
                int end = shortRuns(run);
                HostWire.writeFully(to, runs, run, end);
                run = end;
            }
        }
    }

    void read(SocketChannel from) throws IOException {
        for (int run = 0; run < count; ) {
            if (length(run) >= LONE_RUN) {
                HostWire.readFully(from, runs[run++]);
            } else {
                int end = shortRuns(run);
                HostWire.readFully(from, runs, run, end);
                run = end;
            }
        }
    }

    private int shortRuns(int from) {
        int end = from;
        while (end < count && length(end) < LONE_RUN) {
            end++;
        }
        return end;
    }
}
