// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;

/// Paths as [FileCalls] takes them: NUL-terminated, in native memory.
public final class PathText {
    /// The encoding that the JDK itself uses for file names.
    public static final Charset CHARSET =
            Charset.forName(System.getProperty("sun.jnu.encoding", StandardCharsets.UTF_8.name()));

    private PathText() {}

    public static MemorySegment of(Arena arena, Path path) {
        return arena.allocateFrom(path.toString(), CHARSET);
    }
}
