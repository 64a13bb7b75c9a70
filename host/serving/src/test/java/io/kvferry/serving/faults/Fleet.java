// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.faults;

import static io.kvferry.tck.FreePorts.freePort;

import io.kvferry.serving.http.Json;

import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.TimeUnit;

/// A prefill instance, a decode instance and a router, each in a JVM of its own; KV goes straight
/// from process to process, and through a folder that both instances share. The router reaches the
/// instances through proxies.
///
/// Threading: one thread.
final class Fleet implements AutoCloseable {
    static final int REQUEST_SECONDS = 20;
    private static final long HOLD_MILLIS = 600;
    private static final long PAUSE_MILLIS = 1500;
    private static final int FILES = 8;

    final ServerProcess prefill;
    final ServerProcess decode;
    final ServerProcess router;
    private final LinkProxy toPrefill;
    private final LinkProxy toDecode;
    private final Path disk;
    private final boolean mounted;
    private final Random random;

    Fleet(Path folder, Random random) throws IOException {
        this.random = random;
        disk = Files.createDirectory(folder.resolve("disk"));
        mounted = run("mount", "-t", "tmpfs", "-o", "size=24m,mode=700", "kvferry-test", "" + disk);
        int bootstrap = freePort();
        prefill = serve(folder, "prefill", "kv_producer", bootstrap);
        decode = serve(folder, "decode", "kv_consumer", bootstrap);
        toPrefill = new LinkProxy(prefill.port);
        toDecode = new LinkProxy(decode.port);
        router =
                new ServerProcess(
                        "router",
                        freePort(),
                        folder.resolve("router.log"),
                        List.of(
                                "route",
                                "--hand-off",
                                "mooncake",
                                "--bootstrap",
                                "http://127.0.0.1:" + bootstrap,
                                "--prefill",
                                "http://127.0.0.1:" + toPrefill.port(),
                                "--decode",
                                "http://127.0.0.1:" + toDecode.port(),
                                "--request-timeout",
                                Integer.toString(REQUEST_SECONDS),
                                "--first-byte-timeout",
                                "8",
                                "--idle-timeout",
                                "6"));
    }

    /// Starts all processes, and waits until they are ready.
    void start() throws Exception {
        for (var process : processes()) {
            process.launch();
        }
        for (var process : processes()) {
            process.awaitReady();
        }
    }

    private ServerProcess serve(Path folder, String name, String role, int bootstrap)
            throws IOException {
        return new ServerProcess(
                name,
                freePort(),
                folder.resolve(name + ".log"),
                List.of(
                        "serve",
                        "--runner",
                        "synthetic",
                        "--runner-options",
                        "{\"verify\": \"all\"}",
                        "--blocks",
                        "256",
                        "--request-timeout",
                        Integer.toString(REQUEST_SECONDS),
                        "--kv-transfer-config",
                        config(role, bootstrap)));
    }

    private String config(String role, int bootstrap) {
        var config =
                Json.object()
                        .put("kv_connector", "MultiConnector")
                        .put("kv_role", "kv_both")
                        .put("kv_load_failure_policy", "recompute");
        var children = config.putObject("kv_connector_extra_config").putArray("connectors");
        children.addObject()
                .put("kv_connector", "MooncakeConnector")
                .put("kv_role", role)
                .putObject("kv_connector_extra_config")
                .put("bootstrap_port", bootstrap)
                .put("abort_request_timeout", "3s")
                .put("connector_timeout", "3s")
                .put("transfer_timeout", "5s")
                .put("rehearsal", false);
        children.addObject()
                .put("kv_connector", "DiskConnector")
                .put("kv_role", "kv_both")
                .putObject("kv_connector_extra_config")
                .put("shared_storage_path", disk.resolve("kv").toString())
                .put("capacity", "16MiB")
                .put("reserve", "0")
                .put("io_timeout", "2s")
                .put("lease", "5s")
                .put("scan_interval", "1s")
                .put("rehearsal", false);
        return Json.text(config);
    }

    List<ServerProcess> processes() {
        return List.of(prefill, decode, router);
    }

    /// Whether a fault can be brought about here: a full disk needs the right to mount a small one.
    boolean can(Fault fault) {
        return fault != Fault.DISK_FULL || mounted;
    }

    /// Brings a fault about, and ends it.
    ///
    /// @return the process that is ready again, where one was started
    Optional<ServerProcess> suffer(Fault fault) throws Exception {
        return switch (fault) {
            case KILL_PREFILL -> killed(prefill);
            case KILL_DECODE -> killed(decode);
            case KILL_ROUTER -> killed(router);
            case PAUSE_PREFILL -> paused(prefill);
            case PAUSE_DECODE -> paused(decode);
            case PAUSE_ROUTER -> paused(router);
            case RESTART_PREFILL -> restarted(prefill);
            case RESTART_DECODE -> restarted(decode);
            case RESTART_ROUTER -> restarted(router);
            case DISK_FULL -> fullDisk();
            case CORRUPT_FILES -> files(this::corrupt);
            case TORN_FILES -> files(this::tear);
            case UNREADABLE_FILES -> unreadable();
            case DELETED_FILES -> deleted();
            case STALLED_LINK -> stalled(random.nextBoolean() ? toPrefill : toDecode);
            case RESET_CONNECTIONS -> {
                toPrefill.reset();
                toDecode.reset();
                yield Optional.empty();
            }
            case SILENT_CONNECTIONS -> connections(0);
            case GARBAGE_CONNECTIONS -> connections(2000);
        };
    }

    private static Optional<ServerProcess> killed(ServerProcess process) throws Exception {
        process.kill();
        process.launch();
        process.awaitReady();
        return Optional.of(process);
    }

    private static Optional<ServerProcess> restarted(ServerProcess process) throws Exception {
        process.terminate();
        process.launch();
        process.awaitReady();
        return Optional.of(process);
    }

    private static Optional<ServerProcess> paused(ServerProcess process) throws Exception {
        process.signal("STOP");
        Thread.sleep(PAUSE_MILLIS);
        process.signal("CONT");
        return Optional.empty();
    }

    private static Optional<ServerProcess> stalled(LinkProxy link) throws Exception {
        link.stall(true);
        Thread.sleep(PAUSE_MILLIS);
        link.stall(false);
        return Optional.empty();
    }

    private Optional<ServerProcess> fullDisk() throws Exception {
        var filler = disk.resolve("filler");
        try (var out = Files.newOutputStream(filler)) {
            fill(out);
            Thread.sleep(HOLD_MILLIS);
        } finally {
            Files.deleteIfExists(filler);
        }
        return Optional.empty();
    }

    private static void fill(OutputStream out) {
        try {
            var zeros = new byte[64 << 10];
            while (true) {
                out.write(zeros);
            }
        } catch (IOException e) {
            // full: that is what was wanted
        }
    }

    private interface Damage {
        void to(Path file) throws IOException;
    }

    private Optional<ServerProcess> files(Damage damage) throws IOException {
        for (var file : someBlocks()) {
            try {
                damage.to(file);
            } catch (IOException e) {
                continue; // evicted meanwhile
            }
        }
        return Optional.empty();
    }

    private List<Path> someBlocks() throws IOException {
        var all = new ArrayList<>(blocks());
        Collections.shuffle(all, random);
        return all.subList(0, Math.min(FILES, all.size()));
    }

    /// The files of stored blocks, those that are there while the folder is read.
    private List<Path> blocks() throws IOException {
        var found = new ArrayList<Path>();
        for (var namespace : children(disk.resolve("kv"))) {
            for (var part : children(namespace.resolve("blocks"))) {
                found.addAll(children(part));
            }
        }
        return found;
    }

    private static List<Path> children(Path folder) throws IOException {
        if (!Files.isDirectory(folder)) {
            return List.of();
        }
        try (var entries = Files.list(folder)) {
            return entries.toList();
        }
    }

    private void corrupt(Path file) throws IOException {
        try (var channel =
                FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            var bytes = new byte[1 + random.nextInt(16)];
            random.nextBytes(bytes);
            long size = Math.max(1, channel.size());
            channel.write(java.nio.ByteBuffer.wrap(bytes), random.nextLong(size));
        }
    }

    private void tear(Path file) throws IOException {
        try (var channel = FileChannel.open(file, StandardOpenOption.WRITE)) {
            channel.truncate(random.nextLong(Math.max(1, channel.size())));
        }
    }

    /// Links to themselves, which root cannot open either.
    private Optional<ServerProcess> unreadable() throws Exception {
        var spoilt = someBlocks();
        for (var file : spoilt) {
            Files.deleteIfExists(file);
            try {
                Files.createSymbolicLink(file, file);
            } catch (IOException e) {
                continue; // stored again meanwhile
            }
        }
        Thread.sleep(HOLD_MILLIS);
        for (var file : spoilt) {
            Files.deleteIfExists(file);
        }
        return Optional.empty();
    }

    private Optional<ServerProcess> deleted() throws IOException {
        for (var block : blocks()) {
            Files.deleteIfExists(block);
        }
        if (random.nextBoolean()) {
            deleteTree(disk.resolve("kv"));
        }
        return Optional.empty();
    }

    private static void deleteTree(Path folder) throws IOException {
        for (var child : children(folder)) {
            if (Files.isDirectory(child)) {
                deleteTree(child);
            }
            try {
                Files.deleteIfExists(child);
            } catch (IOException e) {
                continue; // something was stored meanwhile
            }
        }
    }

    /// Several to each port.
    private Optional<ServerProcess> connections(int bytes) throws Exception {
        var sockets = new ArrayList<Socket>();
        try {
            for (var process : processes()) {
                for (int port : process.listeningPorts()) {
                    for (int i = 0; i < 4; i++) {
                        var socket = new Socket(InetAddress.getLoopbackAddress(), port);
                        sockets.add(socket);
                        sendGarbage(socket, bytes);
                    }
                }
            }
            Thread.sleep(HOLD_MILLIS);
        } finally {
            for (var socket : sockets) {
                socket.close();
            }
        }
        return Optional.empty();
    }

    private void sendGarbage(Socket socket, int bytes) {
        var garbage = new byte[bytes];
        random.nextBytes(garbage);
        try {
            socket.getOutputStream().write(garbage);
        } catch (IOException e) {
            // closed by the other side: right
        }
    }

    private static boolean run(String... command) {
        try {
            var process = new ProcessBuilder(List.of(command)).redirectErrorStream(true).start();
            return process.waitFor(20, TimeUnit.SECONDS) && process.exitValue() == 0;
        } catch (IOException e) {
            return false; // no such command here
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        }
    }

    @Override
    public void close() throws IOException {
        for (var process : processes()) {
            process.close();
        }
        toPrefill.close();
        toDecode.close();
        if (mounted) {
            run("umount", "-l", disk.toString()); // also while a process is being ended
        }
    }
}
