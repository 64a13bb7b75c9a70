// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.backend.mooncake.store.master.OwnerMembership;
import io.kvferry.backend.mooncake.store.tier.BucketEviction;
import io.kvferry.backend.mooncake.store.tier.TierConfig;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.disk.DirectIo;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// An owner in a process of its own. It ends with the end of its standard input.
public final class OwnerChild implements AutoCloseable {
    private final Child child;

    /// Starts one on a port, 0 for any, and waits until it is ready.
    public OwnerChild(int port, long bytes) throws Exception {
        this(command(port, bytes));
    }

    /// The same over a disk tier in a folder.
    OwnerChild(int port, long bytes, Path tier) throws Exception {
        this(more(command(port, bytes), tier.toString()));
    }

    /// One that reports to a master.
    public OwnerChild(int port, long bytes, String master) throws Exception {
        this(more(command(port, bytes), "", master));
    }

    private OwnerChild(List<String> command) throws Exception {
        this.child = new Child(command);
    }

    private static List<String> more(List<String> command, String... words) {
        var all = new ArrayList<>(command);
        all.addAll(List.of(words));
        return all;
    }

    /// A process that prints its address when it is ready.
    public static final class Child {
        private final Process process;
        private final String address;

        public Child(List<String> command) throws Exception {
            this.process =
                    new ProcessBuilder(command)
                            .redirectError(ProcessBuilder.Redirect.INHERIT)
                            .start();
            var line =
                    CompletableFuture.supplyAsync(
                            () -> firstLine(process),
                            task -> Thread.ofPlatform().daemon().start(task));
            boolean ready = false;
            try {
                this.address = line.get(100, TimeUnit.SECONDS);
                ready = !address.isEmpty();
            } finally {
                if (!ready) {
                    process.destroyForcibly();
                }
            }
            if (!ready) {
                throw new IllegalStateException("it did not start: " + command.getLast());
            }
        }

        /// `host:port`
        public String address() {
            return address;
        }

        private void signal(String name) {
            try {
                String pid = Long.toString(process.pid());
                if (new ProcessBuilder("kill", "-" + name, pid).start().waitFor() != 0) {
                    throw new IllegalStateException("kill -" + name + " failed");
                }
            } catch (IOException | InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }

        /// Returns when all its threads have stopped: they go on for a while on a busy machine.
        private void stop() {
            signal("STOP");
            var limit = Deadline.in(Duration.ofSeconds(60));
            while (!hasStopped()) {
                if (limit.passed()) {
                    throw new IllegalStateException("it does not stop");
                }
                LockSupport.parkNanos(1_000_000);
            }
        }

        private boolean hasStopped() {
            try (var threads = Files.list(Path.of("/proc/" + process.pid() + "/task"))) {
                for (Path thread : threads.toList()) {
                    String stat = Files.readString(thread.resolve("stat"));
                    if (stat.charAt(stat.lastIndexOf(')') + 2) != 'T') {
                        return false;
                    }
                }
                return true;
            } catch (NoSuchFileException _) { // a thread that has ended meanwhile
                return false;
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        /// As kill -9.
        public void kill() {
            process.destroyForcibly();
            try {
                if (!process.waitFor(60, TimeUnit.SECONDS)) {
                    throw new IllegalStateException("it does not die");
                }
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /// That starts one, which says in a line of JSON where it is.
    public static List<String> command(int port, long bytes) {
        return List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "--enable-native-access=ALL-UNNAMED",
                "-Xmx128m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                System.getProperty("java.class.path"),
                OwnerChild.class.getName(),
                Integer.toString(port),
                Long.toString(bytes));
    }

    private static String firstLine(Process process) {
        try {
            BufferedReader lines = process.inputReader(StandardCharsets.UTF_8);
            String line = lines.readLine();
            while (line != null && !line.startsWith("{")) { // a warning of the JVM
                line = lines.readLine();
            }
            return line == null ? "" : line.replaceAll(".*\"address\": \"|\"}", "");
        } catch (IOException e) {
            return "";
        }
    }

    /// `host:port`
    public String address() {
        return child.address();
    }

    /// It neither answers nor hangs up from here on.
    public void stop() {
        child.stop();
    }

    /// After [#stop].
    public void proceed() {
        child.signal("CONT");
    }

    /// As kill -9.
    public void kill() {
        child.kill();
    }

    @Override
    public void close() {
        kill();
    }

    /// Many small buckets, written at once.
    static TierConfig smallTier(Path folder) {
        return TierConfig.of(folder, 32 << 20)
                .withBuckets(256 << 10, 20, BucketEviction.FIFO)
                .withStaging(1 << 20)
                .withIo(
                        DirectIo.AUTO,
                        Duration.ofMillis(1),
                        Duration.ofSeconds(60),
                        Duration.ofSeconds(1));
    }

    /// The child's side.
    public static void main(String[] arguments) throws Exception {
        var settings =
                new StoreOwner.Settings(
                        "127.0.0.1",
                        Integer.parseInt(arguments[0]),
                        Long.parseLong(arguments[1]),
                        StoreConfig.DEFAULT.withChecksums(true),
                        Duration.ofSeconds(10),
                        Optional.empty(),
                        false);
        if (arguments.length > 2 && !arguments[2].isEmpty()) {
            settings = settings.withDisk(smallTier(Path.of(arguments[2])));
        }
        try (var owner = StoreOwner.start(settings);
                var _ = report(owner, arguments)) {
            System.out.println("{\"address\": \"" + owner.address() + "\"}");
            System.out.flush();
            while (System.in.read() >= 0) {
                // until it ends
            }
        }
    }

    private static AutoCloseable report(StoreOwner owner, String[] arguments) {
        return arguments.length > 3
                ? OwnerMembership.start(RemoteStoreConfig.of(arguments[3]), owner)
                : () -> {};
    }
}
