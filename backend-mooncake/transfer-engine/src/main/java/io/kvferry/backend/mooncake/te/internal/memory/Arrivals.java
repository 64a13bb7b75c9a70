// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.memory;

import io.kvferry.backend.mooncake.te.Extents;
import io.kvferry.backend.mooncake.te.WriteGrant.Received;

import java.util.Arrays;
import java.util.concurrent.locks.ReentrantLock;

/// The arrivals under a grant for any peer: the addresses that whole WRITEs have filled, and
/// whether one was lost.
///
/// A WRITE of version 1 has no receipt. Its sender reports it as done when its own socket has taken
/// the bytes, so only the receiver can tell whether they have arrived.
///
/// Threading: any thread.
public final class Arrivals {
    /// Bound on ranges that cannot be merged, 16 bytes each; with more the load fails.
    private static final int MOST_RANGES = 1 << 20;

    private final ReentrantLock lock = new ReentrantLock();
    private long[] starts = new long[16];
    private long[] ends = new long[16];
    private int count;

    /// Ranges that are sorted and merged, at the front.
    private int merged;

    private boolean acknowledged;
    private boolean unacknowledged;
    private boolean broken;
    private boolean refused;

    /// All bytes of a WRITE are in memory.
    ///
    /// @param receipt whether its sender waits for a receipt before it reports the WRITE as done
    void arrived(long address, long bytes, boolean receipt) {
        lock.lock();
        try {
            acknowledged |= receipt;
            unacknowledged |= !receipt;
            long end = address + bytes;
            if (count > 0 && ends[count - 1] == address) { // writers go upwards, mostly
                ends[count - 1] = end;
                return;
            }
            if (count == starts.length && !makeRoom()) {
                broken = true;
                return;
            }
            starts[count] = address;
            ends[count++] = end;
        } finally {
            lock.unlock();
        }
    }

    /// A WRITE ended before its last byte: what it names holds a mixture.
    void torn() {
        lock.lock();
        try {
            broken = true;
        } finally {
            lock.unlock();
        }
    }

    /// A WRITE into the memory of the grant was not applied.
    ///
    /// @param closed whether that was because the grant had been closed
    /// @param receipt whether its sender was told
    void refused(boolean closed, boolean receipt) {
        lock.lock();
        try {
            broken |= closed;
            refused |= !receipt;
        } finally {
            lock.unlock();
        }
    }

    /// As [io.kvferry.backend.mooncake.te.WriteGrant#received].
    public Received received(Extents wanted) {
        lock.lock();
        try {
            if (broken) {
                return Received.BROKEN;
            }
            if (covers(wanted)) {
                return Received.ALL;
            }
            if (refused) {
                return Received.BROKEN;
            }
            return acknowledged && !unacknowledged ? Received.ACKNOWLEDGED : Received.PART;
        } finally {
            lock.unlock();
        }
    }

    private boolean covers(Extents wanted) {
        merge();
        int at = 0;
        for (int i = 0; i < wanted.size(); i++) {
            long start = wanted.address(i);
            while (at < count && ends[at] <= start) {
                at++;
            }
            if (at == count || starts[at] > start || ends[at] < start + wanted.bytes(i)) {
                return false;
            }
        }
        return true;
    }

    private boolean makeRoom() {
        merge();
        if (count > starts.length / 2) {
            if (starts.length >= MOST_RANGES) {
                return count < starts.length / 4 * 3; // else each few writes would cost a sort
            }
            starts = Arrays.copyOf(starts, starts.length * 2);
            ends = Arrays.copyOf(ends, ends.length * 2);
        }
        return true;
    }

    /// Starts and ends may be sorted apart, see [Extents.Builder#build].
    private void merge() {
        if (merged == count) {
            return;
        }
        Arrays.sort(starts, 0, count);
        Arrays.sort(ends, 0, count);
        int out = 0;
        for (int i = 0; i < count; i++) {
            if (out > 0 && starts[i] <= ends[out - 1]) {
                ends[out - 1] = ends[i];
            } else {
                starts[out] = starts[i];
                ends[out++] = ends[i];
            }
        }
        count = out;
        merged = out;
    }
}
