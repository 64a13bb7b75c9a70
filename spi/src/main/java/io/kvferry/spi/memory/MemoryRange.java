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
