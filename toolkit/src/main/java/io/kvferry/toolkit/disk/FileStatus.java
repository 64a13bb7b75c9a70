// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

/// What [FileCalls#status] found; one object per thread, filled again and again.
public final class FileStatus {
    private long bytes;
    private long modifiedNanos;

    public void set(long newBytes, long newModifiedNanos) {
        bytes = newBytes;
        modifiedNanos = newModifiedNanos;
    }

    public long bytes() {
        return bytes;
    }

    /// Modification time in nanoseconds since the epoch.
    public long modifiedNanos() {
        return modifiedNanos;
    }
}
