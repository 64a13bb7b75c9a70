// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.memory;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.lang.foreign.MemorySegment;
import java.util.concurrent.CompletionStage;

/// The pool of a host that has none.
final class NoStagingPool implements StagingPool {
    private static KvFerryException none() {
        return new KvFerryException(ErrorCode.UNAVAILABLE, "this host has no staging pool");
    }

    @Override
    public MemoryRange.Host range() {
        throw none();
    }

    @Override
    public long capacity() {
        return 0;
    }

    @Override
    public long available() {
        return 0;
    }

    @Override
    public long allocate(String owner, long bytes) {
        throw none();
    }

    @Override
    public long allocateEvictable(String owner, long bytes) {
        throw none();
    }

    @Override
    public long offset(long buffer) {
        throw none();
    }

    @Override
    public long size(long buffer) {
        throw none();
    }

    @Override
    public MemorySegment segment(long buffer) {
        throw none();
    }

    @Override
    public boolean pin(long buffer) {
        return false;
    }

    @Override
    public void unpin(long buffer) {
        throw none();
    }

    @Override
    public void free(long buffer) {
        throw none();
    }

    @Override
    public void quarantine(long buffer, CompletionStage<?> untouched) {
        throw none();
    }
}
