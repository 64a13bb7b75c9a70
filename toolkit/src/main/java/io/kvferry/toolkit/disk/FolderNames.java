// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/// The names in a folder, one after another, without an object for each; `.` and `..` are among
/// them.
///
/// Threading: one thread at a time.
public final class FolderNames implements AutoCloseable {
    /// Bytes for which the system is asked at a time.
    public static final int BUFFER_BYTES = 64 << 10;

    // struct linux_dirent64, linux/dirent.h: inode, offset, length of the entry, type, name.
    private static final int LENGTH_AT = 16;
    private static final int NAME_AT = 19;
    private static final VarHandle LENGTH =
            MethodHandles.byteArrayViewVarHandle(short[].class, ByteOrder.nativeOrder());

    private final FileCalls calls;
    private final MemorySegment buffer;
    private final byte[] entries;
    private int handle = -1;
    private int end;
    private int next;
    private int name;
    private int length;

    /// @param bytes of the buffer; at least those of one entry, 280
    public FolderNames(FileCalls calls, int bytes) {
        this.calls = calls;
        this.buffer = Arena.ofAuto().allocate(bytes, Long.BYTES);
        this.entries = new byte[bytes];
    }

    /// Begins with another folder; answers 0 or a negated [Errno], as [FileCalls#openFolder].
    public int open(MemorySegment folder) {
        close();
        int rc = calls.openFolder(folder);
        if (rc < 0) {
            return rc;
        }
        handle = rc;
        end = 0;
        next = 0;
        return 0;
    }

    /// Goes on to the next name; answers 1, or 0 at the end, or a negated [Errno].
    public int next() {
        if (next == end) {
            long got;
            do {
                got = calls.list(handle, buffer);
            } while (got == -Errno.EINTR);
            if (got <= 0) {
                return (int) got;
            }
            end = Math.toIntExact(got);
            next = 0;
            MemorySegment.copy(buffer, ValueLayout.JAVA_BYTE, 0, entries, 0, end);
        }
        int bytes = end - next > NAME_AT ? (short) LENGTH.get(entries, next + LENGTH_AT) : 0;
        if (bytes <= NAME_AT || bytes > end - next) {
            return -Errno.EIO; // no entry of a kernel looks like this
        }
        name = next + NAME_AT;
        next += bytes;
        length = 0;
        while (name + length < next && entries[name + length] != 0) {
            length++;
        }
        return 1;
    }

    /// Bytes of the name.
    public int length() {
        return length;
    }

    /// Byte `i` of the name.
    public byte at(int i) {
        return entries[name + i];
    }

    /// Ends the listing. Idempotent.
    @Override
    public void close() {
        if (handle >= 0) {
            calls.close(handle);
            handle = -1;
        }
    }
}
