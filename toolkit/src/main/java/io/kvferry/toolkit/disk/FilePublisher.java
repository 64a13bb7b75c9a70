// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import java.lang.foreign.MemorySegment;

/// How a file becomes visible: written under a temporary name, brought to the medium if that was
/// asked for, and renamed only after a complete write. A process killed at any step leaves the
/// whole file or none, and at most a temporary one.
///
/// Every method answers 0 or a negated [Errno].
///
/// Threading: any thread.
public final class FilePublisher {
    private final FileCalls calls;
    private final Durability durability;

    public FilePublisher(FileCalls calls, Durability durability) {
        this.calls = calls;
        this.durability = durability;
    }

    /// Ends the writing of a temporary file.
    ///
    /// @param written 0, or why its bytes could not be written; it is closed all the same
    public int complete(int handle, int written) {
        int rc = written;
        int closed;
        try {
            if (rc == 0 && durability != Durability.NONE) {
                rc = calls.syncData(handle);
            }
        } finally {
            closed = calls.close(handle);
        }
        return rc == 0 ? closed : rc; // network file systems report a failed write here
    }

    /// Gives a complete file its name, unless the name is taken: EEXIST.
    ///
    /// @param folder of the name; made again if it was deleted
    /// @param parent of the folder
    public int publish(
            MemorySegment temp, MemorySegment file, MemorySegment folder, MemorySegment parent) {
        int rc = calls.publish(temp, file);
        if (rc == -Errno.ENOENT) {
            int made = makeFolder(folder, parent);
            rc = made == 0 ? calls.publish(temp, file) : made;
        }
        return rc;
    }

    /// Makes a folder whose name need not be durable yet; that it is there already is no failure.
    public int makeFolder(MemorySegment folder) {
        int rc = calls.makeFolder(folder);
        return rc == -Errno.EEXIST ? 0 : rc;
    }

    /// Makes a folder; that it is there already is no failure. With [Durability#STRICT] its name is
    /// durable afterwards, also when another process made it.
    public int makeFolder(MemorySegment folder, MemorySegment parent) {
        int rc = makeFolder(folder);
        return rc == 0 ? syncNames(parent) : rc;
    }

    /// Brings the names in a folder to the medium if [Durability#STRICT] asks for it.
    public int syncNames(MemorySegment folder) {
        return durability == Durability.STRICT ? calls.syncFolder(folder) : 0;
    }

    /// Makes the bytes of an existing file as durable as those of a file written here, because its
    /// writer may have used a weaker [Durability]. Its name is synced by [#syncNames].
    public int ensureDurable(MemorySegment file) {
        if (durability == Durability.NONE) {
            return 0;
        }
        int handle = calls.openRead(file, false);
        if (handle < 0) {
            return handle;
        }
        try {
            return calls.syncData(handle);
        } finally {
            calls.close(handle);
        }
    }
}
