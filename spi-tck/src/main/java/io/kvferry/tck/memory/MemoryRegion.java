// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.transfer.Registration;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.function.Consumer;

/// Registered host memory. Copies hold the read lock chunk by chunk, so that once [#close] has
/// returned nobody, near or far, touches the memory.
final class MemoryRegion implements Registration {
    private final MemoryRange.Host memory;
    private final Consumer<MemoryRegion> onClose;
    private final ReentrantReadWriteLock access = new ReentrantReadWriteLock();
    private boolean closed; // guarded by access

    MemoryRegion(MemoryRange.Host memory, Consumer<MemoryRegion> onClose) {
        this.memory = memory;
        this.onClose = onClose;
    }

    @Override
    public MemoryRange memory() {
        return memory;
    }

    @Override
    public long device() {
        return 0;
    }

    @Override
    public long address() {
        return memory.segment().address();
    }

    boolean covers(long at, long length) {
        return at >= address()
                && length <= memory.length()
                && at - address() <= memory.length() - length;
    }

    /// Copies within the rights of both regions; false when one of them is closed.
    static boolean copy(
            MemoryRegion from, long fromAddress, MemoryRegion to, long toAddress, long bytes) {
        from.access.readLock().lock();
        try {
            to.access.readLock().lock();
            try {
                if (from.closed || to.closed) {
                    return false;
                }
                MemorySegment.copy(
                        from.memory.segment(),
                        fromAddress - from.address(),
                        to.memory.segment(),
                        toAddress - to.address(),
                        bytes);
                return true;
            } finally {
                to.access.readLock().unlock();
            }
        } finally {
            from.access.readLock().unlock();
        }
    }

    /// Whether both ranges hold the same bytes, as a checksum would tell.
    static boolean equal(
            MemoryRegion one, long oneAddress, MemoryRegion other, long otherAddress, long bytes) {
        long from = oneAddress - one.address();
        long at = otherAddress - other.address();
        return MemorySegment.mismatch(
                        one.memory.segment(),
                        from,
                        from + bytes,
                        other.memory.segment(),
                        at,
                        at + bytes)
                < 0;
    }

    /// Damages one byte.
    void flip(long at) {
        long offset = at - address();
        var segment = memory.segment();
        segment.set(
                ValueLayout.JAVA_BYTE, offset, (byte) ~segment.get(ValueLayout.JAVA_BYTE, offset));
    }

    boolean isClosed() {
        access.readLock().lock();
        try {
            return closed;
        } finally {
            access.readLock().unlock();
        }
    }

    @Override
    public void close() {
        access.writeLock().lock();
        try {
            if (closed) {
                return;
            }
            closed = true;
        } finally {
            access.writeLock().unlock();
        }
        onClose.accept(this);
    }
}
