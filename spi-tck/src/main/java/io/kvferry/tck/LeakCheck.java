// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/// Detects leaked threads and, on Linux, leaked files and sockets. Take a snapshot before the test,
/// check after it.
///
/// Threading: immutable.
public final class LeakCheck {
    private static final Path DESCRIPTORS = Path.of("/proc/self/fd");

    /// Number of checks, some milliseconds apart. A resource counts as leaked if it is still there
    /// after all of them and after [#LIMIT]: on a busy machine a single thread may not run for
    /// seconds.
    private static final int LOOKS = 200;

    private static final Duration LIMIT = Duration.ofSeconds(6);

    /// Descriptors that the JVM and the test runner open when they like.
    private static final Pattern IGNORED_FILES =
            Pattern.compile(
                    ".*\\.(jar|class|so[.0-9]*|properties|xml)|.*/(modules|tzdb\\.dat|u?random)|pipe:.*|anon_inode:.*|/dev/.*|/proc/.*");

    private static final Pattern IGNORED_THREADS =
            Pattern.compile(
                    "ForkJoinPool.*|CompletableFutureDelayScheduler|Common-Cleaner|process reaper.*|surefire.*|"
                            + "junit.*|Attach Listener|VirtualThread-.*|Read-Poller|Write-Poller|Cleaner-.*|main|Keep-Alive.*"
                            + "|RMI .*|JFR .*|C[12] CompilerThread.*|Timer-.*|MasterPoller|InnocuousThread.*");

    static {
        openTheSocketsOfTheJvm();
    }

    private final Set<Thread> threads;
    private final List<String> files;

    private LeakCheck(Set<Thread> threads, List<String> files) {
        this.threads = threads;
        this.files = files;
    }

    /// When a program opens its first socket, the JVM opens one of its own and keeps it, to replace
    /// descriptors that are being closed. It must be open before the first snapshot, or the first
    /// test of a plugin with TCP would report it as a leak.
    private static void openTheSocketsOfTheJvm() {
        try (var server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
                var client = new Socket(server.getInetAddress(), server.getLocalPort());
                var accepted = server.accept()) {
            accepted.getOutputStream().write(1);
            client.getInputStream().read();
        } catch (IOException e) {
            // Without a loopback interface no plugin speaks TCP either.
        }
    }

    /// What is there now.
    public static LeakCheck snapshot() {
        return new LeakCheck(Thread.getAllStackTraces().keySet(), openFiles());
    }

    /// Fails when there is more than in the snapshot. Resources that are being closed get six
    /// seconds and two hundred checks: while the machine is paused, time passes but no thread ends.
    public void mustBeClean() {
        long end = System.nanoTime() + LIMIT.toNanos();
        var leaks = leaks();
        int looks = 1;
        while (!leaks.isEmpty() && (looks < LOOKS || System.nanoTime() - end < 0)) {
            LockSupport.parkNanos(5_000_000);
            leaks = leaks();
            looks++;
        }
        if (!leaks.isEmpty()) {
            throw new AssertionError("left behind: " + leaks);
        }
    }

    private Set<String> leaks() {
        var leaks =
                Thread.getAllStackTraces().keySet().stream()
                        .filter(thread -> thread.isAlive() && !threads.contains(thread))
                        .map(Thread::getName)
                        .filter(name -> !IGNORED_THREADS.matcher(name).matches())
                        .map(name -> "thread " + name)
                        .collect(Collectors.toCollection(TreeSet::new));
        var before = new ArrayList<>(files);
        openFiles().stream()
                .filter(file -> !before.remove(file))
                .forEach(file -> leaks.add("file " + file));
        return leaks;
    }

    /// Targets of the process's file descriptors; empty where the system does not tell.
    private static List<String> openFiles() {
        if (!Files.isDirectory(DESCRIPTORS)) {
            return List.of();
        }
        try (var links = Files.list(DESCRIPTORS)) {
            return links.map(LeakCheck::target)
                    .filter(target -> !target.isEmpty() && !IGNORED_FILES.matcher(target).matches())
                    .toList();
        } catch (IOException e) {
            throw new UncheckedIOException("cannot list " + DESCRIPTORS, e);
        }
    }

    private static String target(Path link) {
        try {
            return Files.readSymbolicLink(link).toString();
        } catch (IOException e) {
            return ""; // closed meanwhile
        }
    }
}
