// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Collection;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;

/// Real file calls with a hook before each and a limit on the bytes of one write.
public final class FaultInjectingCalls implements FileCalls {
    /// Decides what a call does: 0 goes on, a negative number is the answer.
    @FunctionalInterface
    public interface Hook {
        int before(String call, long number);
    }

    public static final Hook PASS = (_, _) -> 0;

    public final Collection<String> log = new ConcurrentLinkedQueue<>();
    public volatile Hook hook = PASS;
    public volatile long mostPerCall = Long.MAX_VALUE;
    public volatile int gatherLimit = Integer.MAX_VALUE;
    private final AtomicLong calls = new AtomicLong();
    private final FileCalls real;

    public FaultInjectingCalls(FileCalls real) {
        this.real = real;
    }

    public long count() {
        return calls.get();
    }

    private int before(String call) {
        log.add(call);
        return hook.before(call, calls.incrementAndGet());
    }

    @Override
    public int openRead(MemorySegment path, boolean direct) {
        int rc = before("openRead");
        return rc < 0 ? rc : real.openRead(path, direct);
    }

    @Override
    public int createNew(MemorySegment path, boolean direct) {
        int rc = before("createNew");
        return rc < 0 ? rc : real.createNew(path, direct);
    }

    @Override
    public int allocate(int handle, long bytes, boolean keepLength) {
        int rc = before("allocate");
        return rc < 0 ? rc : real.allocate(handle, bytes, keepLength);
    }

    @Override
    public int openOver(MemorySegment path, boolean direct) {
        int rc = before("openOver");
        return rc < 0 ? rc : real.openOver(path, direct);
    }

    @Override
    public long read(int handle, MemorySegment buffer, long at, long length, long offset) {
        int rc = before("read");
        return rc < 0 ? rc : real.read(handle, buffer, at, Math.min(length, mostPerCall), offset);
    }

    @Override
    public long write(int handle, MemorySegment buffer, long at, long length, long offset) {
        int rc = before("write");
        return rc < 0 ? rc : real.write(handle, buffer, at, Math.min(length, mostPerCall), offset);
    }

    @Override
    public int gatherLimit() {
        return Math.min(gatherLimit, real.gatherLimit());
    }

    @Override
    public long gather(int handle, MemorySegment ranges, int count, long offset) {
        int rc = before("write");
        if (rc < 0) {
            return rc;
        }
        if (mostPerCall == Long.MAX_VALUE) {
            return real.gather(handle, ranges, count, offset);
        }
        try (Arena arena = Arena.ofConfined()) {
            return real.gather(handle, firstCut(ranges, arena), 1, offset);
        }
    }

    @Override
    public long cached(int handle, long bytes) {
        int rc = before("cached");
        return rc < 0 ? rc : real.cached(handle, bytes);
    }

    @Override
    public long scatterCached(int handle, MemorySegment ranges, int count, long offset) {
        int rc = before("readCached");
        if (rc < 0) {
            return rc;
        }
        if (mostPerCall == Long.MAX_VALUE) {
            return real.scatterCached(handle, ranges, count, offset);
        }
        try (Arena arena = Arena.ofConfined()) {
            return real.scatterCached(handle, firstCut(ranges, arena), 1, offset);
        }
    }

    private MemorySegment firstCut(MemorySegment ranges, Arena arena) {
        var cut = arena.allocate(2 * Long.BYTES, Long.BYTES);
        cut.set(ValueLayout.JAVA_LONG, 0, ranges.get(ValueLayout.JAVA_LONG, 0));
        long bytes = Math.min(mostPerCall, ranges.get(ValueLayout.JAVA_LONG, Long.BYTES));
        cut.set(ValueLayout.JAVA_LONG, Long.BYTES, bytes);
        return cut;
    }

    @Override
    public int syncData(int handle) {
        int rc = before("syncData");
        return rc < 0 ? rc : real.syncData(handle);
    }

    @Override
    public int close(int handle) {
        int rc = before("close");
        int closed = real.close(handle); // a bent close still closes, as in the kernel
        return rc < 0 ? rc : closed;
    }

    @Override
    public int publish(MemorySegment from, MemorySegment to) {
        int rc = before("publish");
        return rc < 0 ? rc : real.publish(from, to);
    }

    @Override
    public int rename(MemorySegment from, MemorySegment to) {
        int rc = before("rename");
        return rc < 0 ? rc : real.rename(from, to);
    }

    @Override
    public int unlink(MemorySegment path) {
        int rc = before("unlink");
        return rc < 0 ? rc : real.unlink(path);
    }

    @Override
    public int status(MemorySegment path, FileStatus found) {
        int rc = before("status");
        return rc < 0 ? rc : real.status(path, found);
    }

    @Override
    public int setModified(MemorySegment path, long nanos) {
        int rc = before("setModified");
        return rc < 0 ? rc : real.setModified(path, nanos);
    }

    @Override
    public int setModified(int handle, long nanos) {
        int rc = before("setModified");
        return rc < 0 ? rc : real.setModified(handle, nanos);
    }

    @Override
    public int openFolder(MemorySegment path) {
        int rc = before("openFolder");
        return rc < 0 ? rc : real.openFolder(path);
    }

    @Override
    public long list(int handle, MemorySegment buffer) {
        int rc = before("list");
        return rc < 0 ? rc : real.list(handle, buffer);
    }

    @Override
    public int openLockFile(MemorySegment path) {
        int rc = before("openLockFile");
        return rc < 0 ? rc : real.openLockFile(path);
    }

    @Override
    public int tryLock(int handle) {
        int rc = before("tryLock");
        return rc < 0 ? rc : real.tryLock(handle);
    }

    @Override
    public int shareLock(int handle) {
        int rc = before("shareLock");
        return rc < 0 ? rc : real.shareLock(handle);
    }

    @Override
    public int unlock(int handle) {
        return real.unlock(handle);
    }

    @Override
    public int makeFolder(MemorySegment path) {
        int rc = before("makeFolder");
        return rc < 0 ? rc : real.makeFolder(path);
    }

    @Override
    public int syncFolder(MemorySegment path) {
        int rc = before("syncFolder");
        return rc < 0 ? rc : real.syncFolder(path);
    }
}
