// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import jcuda.Pointer;
import jcuda.runtime.JCuda;
import jcuda.runtime.cudaError;
import jcuda.runtime.cudaEvent_t;
import jcuda.runtime.cudaMemcpyKind;
import jcuda.runtime.cudaStream_t;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;

/// A CUDA device through JCuda. This class and those within it are the only ones that know JCuda:
/// nothing may load them where it is not wanted.
///
/// JCuda creates streams, events and memory and keeps their handles to itself; small subclasses
/// show them.
public final class JcudaDriver implements GpuDriver {
    private final int ordinal;
    private final String name;

    private JcudaDriver(int ordinal, String name) {
        this.ordinal = ordinal;
        this.name = name;
    }

    /// Opens the device of a rank: the rank-th that the process sees, and from the first again
    /// where there are fewer.
    ///
    /// @throws KvFerryException [ErrorCode#UNAVAILABLE] with the reason
    public static GpuDriver open(int rank) {
        try {
            int[] count = new int[1];
            check(JCuda.cudaGetDeviceCount(count), "cudaGetDeviceCount");
            if (count[0] < 1) {
                throw unavailable("the process sees no CUDA device", null);
            }
            int ordinal = rank % count[0];
            check(JCuda.cudaSetDevice(ordinal), "cudaSetDevice");
            int[] version = new int[1];
            check(JCuda.cudaDriverGetVersion(version), "cudaDriverGetVersion");
            return new JcudaDriver(
                    ordinal,
                    "CUDA device %d, driver %d.%d"
                            .formatted(ordinal, version[0] / 1000, version[0] % 1000 / 10));
        } catch (KvFerryException e) {
            throw unavailable(String.valueOf(e.getMessage()), e);
        } catch (RuntimeException | LinkageError e) { // JCuda's ways to say that there is no driver
            throw unavailable("CUDA cannot be used: " + e, e);
        }
    }

    private static KvFerryException unavailable(String why, @Nullable Throwable cause) {
        var e = new KvFerryException(ErrorCode.UNAVAILABLE, why);
        e.initCause(cause);
        return e;
    }

    private static void check(int result, String call) {
        if (result != cudaError.cudaSuccess) {
            throw new KvFerryException(
                    result == cudaError.cudaErrorMemoryAllocation
                            ? ErrorCode.NO_MEMORY
                            : ErrorCode.IO,
                    call + ": " + cudaError.stringFor(result));
        }
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public void bind() {
        check(JCuda.cudaSetDevice(ordinal), "cudaSetDevice");
    }

    @Override
    public Buffer allocate(long bytes) {
        return new CudaBuffer(bytes);
    }

    @Override
    public Stream openStream() {
        return new CudaStream();
    }

    @Override
    public void close() {} // the context belongs to the process

    private static final class Memory extends Pointer {
        long address() {
            return getNativePointer();
        }
    }

    private static final class Event extends cudaEvent_t {}

    private static final class Handle extends cudaStream_t {
        long address() {
            return getNativePointer();
        }
    }

    private static final class CudaBuffer implements Buffer {
        private final Memory pinned = new Memory();
        private final Memory onDevice = new Memory();
        private final MemorySegment host;

        @SuppressWarnings("restricted") // pinned memory that was just allocated, of this length
        CudaBuffer(long bytes) {
            check(JCuda.cudaHostAlloc(pinned, bytes, JCuda.cudaHostAllocDefault), "cudaHostAlloc");
            try {
                check(JCuda.cudaMalloc(onDevice, bytes), "cudaMalloc");
            } catch (KvFerryException e) {
                var _ = JCuda.cudaFreeHost(pinned);
                throw e;
            }
            host = MemorySegment.ofAddress(pinned.address()).reinterpret(bytes);
        }

        @Override
        public MemorySegment host() {
            return host;
        }

        @Override
        public long device() {
            return onDevice.address();
        }

        @Override
        public void close() {
            int device = JCuda.cudaFree(onDevice);
            check(JCuda.cudaFreeHost(pinned), "cudaFreeHost");
            check(device, "cudaFree");
        }
    }

    private static final class CudaStream implements Stream {
        private final Handle stream = new Handle();
        private final Event event = new Event();

        CudaStream() {
            check(
                    JCuda.cudaStreamCreateWithFlags(stream, JCuda.cudaStreamNonBlocking),
                    "cudaStreamCreateWithFlags");
            try {
                check(
                        JCuda.cudaEventCreateWithFlags(event, JCuda.cudaEventDisableTiming),
                        "cudaEventCreateWithFlags");
            } catch (KvFerryException e) {
                var _ = JCuda.cudaStreamDestroy(stream);
                throw e;
            }
        }

        @Override
        public long handle() {
            return stream.address();
        }

        @Override
        public void upload(Buffer buffer, long bytes) {
            var both = (CudaBuffer) buffer;
            copy(both.onDevice, both.pinned, bytes, cudaMemcpyKind.cudaMemcpyHostToDevice);
        }

        @Override
        public void download(Buffer buffer, long bytes) {
            var both = (CudaBuffer) buffer;
            copy(both.pinned, both.onDevice, bytes, cudaMemcpyKind.cudaMemcpyDeviceToHost);
        }

        private void copy(Memory to, Memory from, long bytes, int kind) {
            check(JCuda.cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync");
        }

        @Override
        public void mark() {
            check(JCuda.cudaEventRecord(event, stream), "cudaEventRecord");
        }

        @Override
        public boolean reached() {
            int result = JCuda.cudaEventQuery(event);
            if (result == cudaError.cudaErrorNotReady) {
                return false;
            }
            check(result, "cudaEventQuery");
            return true;
        }

        @Override
        public void close() {
            int destroyed = JCuda.cudaEventDestroy(event);
            check(JCuda.cudaStreamDestroy(stream), "cudaStreamDestroy");
            check(destroyed, "cudaEventDestroy");
        }
    }
}
