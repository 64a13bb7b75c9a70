// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.spi.KvFerryException;

import java.lang.foreign.MemorySegment;

/// The driver functions of one GPU that the `nccl` plane needs: memory, a stream, copies between
/// host and device. Tests use host memory instead.
///
/// Threading: a thread calls [#bind] first; one thread at a time for each stream and buffer.
public interface GpuDriver extends AutoCloseable {
    /// The device and its driver, for logs.
    String name();

    /// Makes the device current on the calling thread.
    void bind();

    /// A buffer on the device, and a pinned one of the same size on the host.
    ///
    /// @throws KvFerryException [io.kvferry.spi.ErrorCode#NO_MEMORY]
    Buffer allocate(long bytes);

    /// A stream of its own.
    Stream openStream();

    @Override
    void close();

    /// The same bytes on both sides.
    interface Buffer extends AutoCloseable {
        MemorySegment host();

        /// Address of the device's side.
        long device();

        /// Frees both; no copy and no NCCL operation may use them any more.
        @Override
        void close();
    }

    /// An ordered queue of operations on the device. A failure of the device ends with
    /// [KvFerryException] [io.kvferry.spi.ErrorCode#IO] in whichever call sees it.
    interface Stream extends AutoCloseable {
        /// The handle (`cudaStream_t`), as NCCL takes it.
        long handle();

        /// Enqueues a copy of the first bytes from the host's side to the device's.
        void upload(Buffer buffer, long bytes);

        /// Enqueues a copy of the first bytes from the device's side to the host's.
        void download(Buffer buffer, long bytes);

        /// Marks what has been enqueued until now. There is one mark: the last one.
        void mark();

        /// Whether everything before the mark has run.
        boolean reached();

        @Override
        void close();
    }
}
