// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.objects;

import io.kvferry.backend.mooncake.store.memory.OffsetAllocator;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.IntUnaryOperator;

/// The mounted segments, and which of them an object goes to: the preferred ones in their order,
/// then consecutive ones from a random start.
///
/// Threading: any thread; readers see a snapshot.
public final class SegmentTable {
    /// Segments tried for one object.
    private static final int MOST_TRIES = 100;

    private final IntUnaryOperator random;
    private volatile Segment[] segments = {};
    private boolean closed;

    public SegmentTable() {
        this(bound -> ThreadLocalRandom.current().nextInt(bound));
    }

    /// @param random a number from 0 to its argument, exclusive
    public SegmentTable(IntUnaryOperator random) {
        this.random = random;
    }

    /// Adds a segment.
    ///
    /// @return false when the table is closed
    public synchronized boolean add(Segment segment) {
        if (closed) {
            return false;
        }
        Segment[] more = Arrays.copyOf(segments, segments.length + 1);
        more[segments.length] = segment;
        segments = more;
        return true;
    }

    /// Takes no more segments.
    public synchronized void close() {
        closed = true;
    }

    public synchronized void remove(List<Segment> gone) {
        segments =
                Arrays.stream(segments)
                        .filter(segment -> !gone.contains(segment))
                        .toArray(Segment[]::new);
    }

    /// All segments of a name, in the order of mounting.
    public List<Segment> named(String name) {
        return Arrays.stream(segments).filter(segment -> segment.name().equals(name)).toList();
    }

    public List<Segment> all() {
        return List.of(segments);
    }

    public int count() {
        return segments.length;
    }

    public long capacity() {
        long sum = 0;
        for (Segment segment : segments) {
            sum += segment.capacity();
        }
        return sum;
    }

    /// Bytes of the largest one.
    public long largest() {
        long largest = 0;
        for (Segment segment : segments) {
            largest = Math.max(largest, segment.capacity());
        }
        return largest;
    }

    public long usedBytes() {
        long sum = 0;
        for (Segment segment : segments) {
            sum += segment.usedBytes();
        }
        return sum;
    }

    public long largestFree() {
        long largest = 0;
        for (Segment segment : segments) {
            largest = Math.max(largest, segment.largestFree());
        }
        return largest;
    }

    /// Gives `object` a place.
    ///
    /// @return false without room
    public boolean place(StoredObject object, long bytes, List<String> preferred) {
        Segment[] now = segments;
        if (now.length == 1) {
            return place(object, bytes, now[0]);
        }
        for (String name : preferred) {
            if (placeInNamed(object, bytes, now, name)) {
                return true;
            }
        }
        if (now.length == 0) {
            return false;
        }
        int start = random.applyAsInt(now.length);
        for (int i = 0; i < Math.min(MOST_TRIES, now.length); i++) {
            if (place(object, bytes, now[(start + i) % now.length])) {
                return true;
            }
        }
        return false;
    }

    private boolean placeInNamed(StoredObject object, long bytes, Segment[] now, String name) {
        @Nullable List<Segment> several = null;
        for (Segment segment : now) {
            if (segment.name().equals(name)) {
                if (several == null) {
                    several = new ArrayList<>(1);
                }
                several.add(segment);
            }
        }
        if (several == null) {
            return false;
        }
        int start = several.size() == 1 ? 0 : random.applyAsInt(several.size());
        for (int i = 0; i < several.size(); i++) {
            if (place(object, bytes, several.get((start + i) % several.size()))) {
                return true;
            }
        }
        return false;
    }

    private static boolean place(StoredObject object, long bytes, Segment segment) {
        int handle = segment.allocate(bytes);
        if (handle == OffsetAllocator.NONE) {
            return false;
        }
        object.segment = segment;
        object.handle = handle;
        object.offset = segment.offset(handle);
        return true;
    }
}
