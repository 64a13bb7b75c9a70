// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.util.zip.CRC32C;

/// CRC32C of native memory anywhere, without an object per range.
///
/// CRC32C accepts only heap arrays and buffers, and a buffer per segment would be garbage per file.
/// Therefore memory is read through a few long-lived buffers, one per GiB of address range in use;
/// only addresses inside a live segment of the caller are read.
///
/// Threading: confined to one I/O thread.
public final class NativeCrc {
    private static final int WINDOW_BITS = 30;
    private static final long WINDOW_BYTES = 1L << WINDOW_BITS;

    /// How far a range may reach beyond its window; a buffer holds less than 2 GiB.
    private static final long MOST_BYTES = 1L << 29;

    private static final int WINDOWS = 256; // a power of two; more memory than that costs garbage

    private final CRC32C crc = new CRC32C();
    private final ByteBuffer[] windows = new ByteBuffer[WINDOWS];
    private final long[] bases = new long[WINDOWS];

    public void reset() {
        crc.reset();
    }

    public int value() {
        return (int) crc.getValue();
    }

    /// @param bytes at most 512 MiB, alive during the call
    public void update(long address, long bytes) {
        long base = address & -WINDOW_BYTES;
        int from = (int) (address - base);
        crc.update(window(base).clear().position(from).limit(from + (int) bytes));
    }

    private ByteBuffer window(long base) {
        int slot = (int) (base >>> WINDOW_BITS) & (WINDOWS - 1);
        ByteBuffer window = windows[slot];
        if (window == null || bases[slot] != base) {
            window = view(base);
            windows[slot] = window;
            bases[slot] = base;
        }
        return window;
    }

    @SuppressWarnings("restricted") // reads only what a live segment of the caller covers
    private static ByteBuffer view(long base) {
        return MemorySegment.ofAddress(base).reinterpret(WINDOW_BYTES + MOST_BYTES).asByteBuffer();
    }
}
