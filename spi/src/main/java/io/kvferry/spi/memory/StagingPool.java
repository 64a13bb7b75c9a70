// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.memory;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.lang.foreign.MemorySegment;
import java.util.concurrent.CompletionStage;

/// Host memory for data in transit between a cache region and a place that cannot be reached from
/// there directly: one segment, registered once, shared by all plugins of a host.
///
/// A buffer is identified by a `long` returned by [#allocate], so buffers cost no heap objects. The
/// id is valid until [#free], [#quarantine] or eviction, and ids are never reused: using an invalid
/// one is refused with [io.kvferry.spi.ErrorCode#INVALID_REQUEST] and has no effect.
///
/// ```
/// long buffer = pool.allocate("MyStore", bytes);
/// try {
///     pool.segment(buffer).copyFrom(block);
///     transfer = backend.submit(... pool.range() at pool.offset(buffer) ...);
/// } finally {
///     pool.quarantine(buffer, transfer.quiesced());   // free when no transfer touches it any more
/// }
/// ```
///
/// Threading: any thread. No method waits for memory to become free.
public interface StagingPool {
    /// A pool that has no memory: every allocation is refused with UNAVAILABLE.
    StagingPool NONE =
            new StagingPool() {
                private static KvFerryException none() {
                    return new KvFerryException(
                            ErrorCode.UNAVAILABLE, "this host has no staging pool");
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
            };

    /// The memory of the whole pool, to be registered with transfer backends once: exactly the
    /// bytes that buffers can lie in. Allocates it on the first call, or on the first [#allocate].
    ///
    /// @throws KvFerryException [io.kvferry.spi.ErrorCode#UNAVAILABLE] when the host has no pool,
    ///   [io.kvferry.spi.ErrorCode#NO_MEMORY] when the memory cannot be had
    MemoryRange.Host range();

    /// Bytes of the pool, those in use included.
    long capacity();

    /// Bytes that no buffer occupies. They need not be contiguous.
    long available();

    /// Allocates a buffer of at least `bytes`, not zeroed. Its size is a power of two of at least
    /// 4096, its offset a multiple of its size, and its address a multiple of 4096. Evicts unpinned
    /// evictable buffers, oldest first, if necessary.
    ///
    /// @param owner who holds it, for the report of leaks: the instance of the connector
    /// @throws KvFerryException [io.kvferry.spi.ErrorCode#NO_MEMORY] when there is no room,
    ///   [io.kvferry.spi.ErrorCode#INVALID_REQUEST] when `bytes` is not positive or exceeds
    ///   [#capacity]
    long allocate(String owner, long bytes);

    /// As [#allocate], for a buffer whose content can be recreated, such as a cached copy: while it
    /// is not pinned, an allocation that finds no room may evict it. Call [#pin] before each use.
    long allocateEvictable(String owner, long bytes);

    /// Where the buffer begins, in bytes from the start of [#range].
    long offset(long buffer);

    /// The memory of a buffer, as long as what was asked for, rounded up. Makes a slice object; hot
    /// loops use [#offset] on the segment of [#range].
    MemorySegment segment(long buffer);

    /// Keeps a buffer in place until [#unpin]: it is not evicted, and [#free] takes effect only
    /// after the last unpin. Pins are counted.
    ///
    /// @return false when the buffer was freed or evicted; its memory may belong to another buffer
    ///   now
    boolean pin(long buffer);

    /// Ends one [#pin].
    void unpin(long buffer);

    /// Gives a buffer back, at once or when the last pin ends.
    void free(long buffer);

    /// Frees a buffer once nothing touches it. Use this instead of [#free] for a buffer that a
    /// transfer, a timed-out call or a cancelled write may still read or write.
    ///
    /// @param untouched completes when the buffer is no longer touched; its result is ignored
    void quarantine(long buffer, CompletionStage<?> untouched);
}
