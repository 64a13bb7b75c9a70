// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.memory;

import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.util.Objects;

/// A piece of memory that can be registered with a transfer backend. Offsets and lengths are in
/// bytes.
public sealed interface MemoryRange {
    MemoryKind kind();

    /// Length in bytes.
    long length();

    /// The segment of a host range.
    ///
    /// @throws IllegalStateException for a range that is elsewhere
    default MemorySegment hostSegment() {
        if (this instanceof Host(MemorySegment segment)) {
            return segment;
        }
        throw new IllegalStateException("not in host memory: " + kind());
    }

    /// Native host memory. A heap segment is refused: its address is not stable.
    record Host(MemorySegment segment) implements MemoryRange {
        public Host {
            if (!segment.isNative()) {
                throw new IllegalArgumentException(
                        "heap segments cannot be registered; allocate from an Arena");
            }
        }

        @Override
        public MemoryKind kind() {
            return MemoryKind.HOST;
        }

        @Override
        public long length() {
            return segment.byteSize();
        }
    }

    /// Device memory, as the opaque address that the device's driver gave out.
    ///
    /// @param device also says what "in this memory" means
    record Device(DeviceContext device, long address, long length) implements MemoryRange {
        public Device {
            Objects.requireNonNull(device, "device");
            checkRange(address, length);
        }

        @Override
        public MemoryKind kind() {
            return MemoryKind.DEVICE;
        }
    }

    /// A device and the stream on which the engine works with its memory; made by the host.
    ///
    /// A host hands device memory only to a connector that claims
    /// [io.kvferry.spi.kv.ConnectorCapabilities.Feature#DEVICE_REGIONS] and to a backend with a
    /// route for [MemoryKind#DEVICE]; all others refuse it. It guarantees that `stream` belongs to
    /// `ordinal`, that the device's context is current on every thread that calls a half, and that
    /// all three outlive whatever they were given to. The engine of this project computes on the
    /// CPU and makes none.
    ///
    /// Data counts as *in the regions* of a device once everything enqueued on `stream` afterwards
    /// sees it. At `endStep` the kernels that compute the step's KV have been enqueued but need not
    /// have run. A half that reads regions must enqueue its copy on `stream`, or make its own
    /// stream wait for an event recorded there. A load is in place once `stream` waits for it, but
    /// must be reported as completed only when it has actually ended, because a completion cannot
    /// be withdrawn.
    ///
    /// @param api the driver that `stream` and the addresses belong to
    /// @param ordinal number of the device among those that the process sees
    /// @param stream handle as the driver gave it out (`CUstream`, `hipStream_t`); 0 for the
    ///   default stream
    record DeviceContext(Api api, int ordinal, long stream) {
        /// Driver APIs.
        public enum Api {
            CUDA,
            HIP,
            LEVEL_ZERO
        }

        public DeviceContext {
            Objects.requireNonNull(api, "api");
            if (ordinal < 0) {
                throw new IllegalArgumentException("device ordinal " + ordinal);
            }
        }
    }

    /// A range of a file. The backend opens it at registration and closes it with the registration.
    record FileRange(Path path, long offset, long length, boolean writable) implements MemoryRange {
        public FileRange {
            checkRange(offset, length);
        }

        @Override
        public MemoryKind kind() {
            return MemoryKind.FILE;
        }
    }

    /// A range of an object in a bucket.
    record ObjectRange(String bucket, String key, long offset, long length) implements MemoryRange {
        public ObjectRange {
            checkRange(offset, length);
        }

        @Override
        public MemoryKind kind() {
            return MemoryKind.OBJECT;
        }
    }

    /// A range of a raw volume (a block device).
    record VolumeRange(String volume, long offset, long length) implements MemoryRange {
        public VolumeRange {
            checkRange(offset, length);
        }

        @Override
        public MemoryKind kind() {
            return MemoryKind.VOLUME;
        }
    }

    private static void checkRange(long start, long length) {
        if (length < 0 || start < 0) {
            throw new IllegalArgumentException("bad range: start " + start + ", length " + length);
        }
    }
}
