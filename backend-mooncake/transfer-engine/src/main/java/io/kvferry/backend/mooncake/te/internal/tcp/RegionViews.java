// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import io.kvferry.backend.mooncake.te.internal.memory.Region;

import org.jspecify.annotations.Nullable;

import java.nio.ByteBuffer;

/// The byte buffers over regions for one connection's channel. They are cached, since a channel
/// accepts nothing else and a new one for each range would allocate.
///
/// One buffer covers 1 GiB of a region, since a ByteBuffer cannot cover more than 2. The table
/// grows with the number of regions in use up to a bound, and is cleared beyond it.
///
/// Threading: the thread that uses the connection.
final class RegionViews {
    private static final int WINDOW_BITS = 30;
    private static final int MOST = 4096;

    private @Nullable Region[] regions = new @Nullable Region[16];
    private int[] windows = new int[16];
    private @Nullable ByteBuffer[] views = new @Nullable ByteBuffer[16];
    private int count;

    /// A view of up to `most` bytes from `offset` on, positioned and limited; valid until the next
    /// call.
    ByteBuffer at(Region region, long offset, long most) {
        int window = (int) (offset >>> WINDOW_BITS);
        int from = (int) (offset - ((long) window << WINDOW_BITS));
        ByteBuffer view = find(region, window);
        int length = (int) Math.min(most, view.capacity() - from);
        return view.limit(from + length).position(from);
    }

    private ByteBuffer find(Region region, int window) {
        int mask = regions.length - 1;
        int slot = hash(region, window) & mask;
        while (regions[slot] != null) {
            ByteBuffer view = views[slot];
            if (regions[slot] == region && windows[slot] == window && view != null) {
                return view;
            }
            slot = (slot + 1) & mask;
        }
        return add(region, window);
    }

    private ByteBuffer add(Region region, int window) {
        long base = (long) window << WINDOW_BITS;
        ByteBuffer made =
                region.memory
                        .asSlice(base, Math.min(1L << WINDOW_BITS, region.bytes - base))
                        .asByteBuffer();
        if (count * 2 >= regions.length) {
            grow();
        }
        put(region, window, made);
        return made;
    }

    private void grow() {
        @Nullable Region[] oldRegions = regions;
        int[] oldWindows = windows;
        @Nullable ByteBuffer[] oldViews = views;
        int size = regions.length < MOST ? regions.length * 2 : 16;
        regions = new @Nullable Region[size];
        windows = new int[size];
        views = new @Nullable ByteBuffer[size];
        count = 0;
        for (int i = 0; size > oldRegions.length && i < oldRegions.length; i++) {
            Region region = oldRegions[i];
            ByteBuffer view = oldViews[i];
            // Regions come and go; those that went make room.
            if (region != null && view != null && !region.gate.isClosed()) {
                put(region, oldWindows[i], view);
            }
        }
    }

    private void put(Region region, int window, ByteBuffer view) {
        int mask = regions.length - 1;
        int slot = hash(region, window) & mask;
        while (regions[slot] != null) {
            slot = (slot + 1) & mask;
        }
        regions[slot] = region;
        windows[slot] = window;
        views[slot] = view;
        count++;
    }

    private static int hash(Region region, int window) {
        int mixed = (System.identityHashCode(region) + window * 31) * 0x9E37_79B9;
        return mixed ^ mixed >>> 15;
    }
}
