// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.crossmemory;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/// Which process a process id means: ids are used again, and count anew in every pid namespace.
///
/// @param startTicks when it started, field 22 of `/proc/PID/stat`
/// @param pidNamespace inode of the namespace that the id belongs to
public record ProcessIdentity(int pid, long startTicks, long pidNamespace) {
    private static final Logger LOG = LoggerFactory.getLogger(ProcessIdentity.class);
    private static final Pattern NAMESPACE = Pattern.compile("pid:\\[(\\d+)]");

    /// Position of the start time among the fields that follow the program's name.
    private static final int START = 19;

    /// This process; empty where there is no `/proc`.
    public static Optional<ProcessIdentity> own() {
        try {
            int pid = Math.toIntExact(ProcessHandle.current().pid());
            return Optional.of(new ProcessIdentity(pid, startOf(pid), ownNamespace()));
        } catch (IOException | RuntimeException e) {
            LOG.debug("this process cannot say who it is: {}", e.toString());
            return Optional.empty();
        }
    }

    /// Whether the process that runs under the id is still the one that is meant.
    boolean runs() {
        try {
            return startOf(pid) == startTicks;
        } catch (IOException | RuntimeException e) {
            LOG.debug("process {} cannot be looked at: {}", pid, e.toString());
            return false;
        }
    }

    /// Whether the process runs under the user of this one. The kernel lets a privileged process
    /// copy the memory of any user's.
    boolean isOfThisUser() throws IOException {
        return userOf("self") == userOf(String.valueOf(pid));
    }

    private static int userOf(String process) throws IOException {
        return (int) Files.getAttribute(Path.of("/proc", process), "unix:uid");
    }

    static long ownNamespace() throws IOException {
        String link = Files.readSymbolicLink(Path.of("/proc/self/ns/pid")).toString();
        Matcher inode = NAMESPACE.matcher(link);
        if (!inode.matches()) {
            throw new IOException("unknown form of namespace: " + link);
        }
        return Long.parseLong(inode.group(1));
    }

    public static long startOf(int pid) throws IOException {
        String stat = Files.readString(Path.of("/proc", String.valueOf(pid), "stat"));
        // The name stands in parentheses and may hold anything, parentheses and spaces included.
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ", -1);
        return Long.parseLong(fields[START]);
    }
}
