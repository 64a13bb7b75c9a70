// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import java.util.Arrays;

/// A reusable list of (local address, remote address, bytes), kept in columns so that a transfer
/// allocates nothing per range.
///
/// Threading: not thread-safe; from submit to the end of the transfer it belongs to the engine and
/// must not change.
public final class Ranges {
    private long[] local;
    private long[] remote;
    private long[] bytes;
    private int size;
    private long totalBytes;

    public Ranges(int capacity) {
        local = new long[Math.max(1, capacity)];
        remote = new long[local.length];
        bytes = new long[local.length];
    }

    /// A list of one range.
    public static Ranges of(long localAddress, long remoteAddress, long bytes) {
        return new Ranges(1).add(localAddress, remoteAddress, bytes);
    }

    /// Appends a range; an empty one is legal and moves nothing.
    public Ranges add(long localAddress, long remoteAddress, long length) {
        if (length < 0) {
            throw new IllegalArgumentException("length is negative: " + length);
        }
        if (size == local.length) {
            local = Arrays.copyOf(local, size * 2);
            remote = Arrays.copyOf(remote, size * 2);
            bytes = Arrays.copyOf(bytes, size * 2);
        }
        local[size] = localAddress;
        remote[size] = remoteAddress;
        bytes[size] = length;
        size++;
        totalBytes = Math.addExact(totalBytes, length);
        return this;
    }

    public void clear() {
        size = 0;
        totalBytes = 0;
    }

    public int size() {
        return size;
    }

    public long totalBytes() {
        return totalBytes;
    }

    public long localAddress(int index) {
        return local[index];
    }

    public long remoteAddress(int index) {
        return remote[index];
    }

    public long bytes(int index) {
        return bytes[index];
    }
}
