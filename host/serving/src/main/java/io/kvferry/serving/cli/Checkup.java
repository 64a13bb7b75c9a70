// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import io.kvferry.toolkit.files.FileTrouble;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/// The checks of `kvferry doctor`. None loads a native library, opens a device or leaves anything
/// behind.
final class Checkup {
    private final Path folder;
    private final List<Finding> findings = new ArrayList<>();

    enum State {
        OK,
        /// Not there, and only some plugins want it.
        OPTIONAL,
        /// Not there, and nothing works without it.
        MISSING
    }

    /// @param what was looked for
    /// @param found what is there, or why it counts as absent
    /// @param remedy how to get it; empty when it is there
    record Finding(String what, State state, String found, String remedy) {}

    Checkup(Path folder) {
        this.folder = folder;
    }

    List<Finding> run() {
        java();
        library(
                "InfiniBand verbs",
                "libibverbs.so.1",
                "RDMA through Mooncake's library: apt install libibverbs1 ibverbs-providers");
        mooncakeEngine();
        pythonModules();
        program("fio", "disk benchmarks: apt install fio");
        program("ucx_perftest", "transfer benchmarks: apt install ucx-utils");
        program("iperf3", "transfer benchmarks: apt install iperf3");
        program("gcc", "tests of the native Mooncake engine: apt install gcc");
        sharedMemory();
        findings.add(CrossMemoryCheck.here());
        directIo();
        return List.copyOf(findings);
    }

    private void ok(String what, String found) {
        findings.add(new Finding(what, State.OK, found, ""));
    }

    private void absent(String what, String found, String remedy) {
        findings.add(new Finding(what, State.OPTIONAL, found, remedy));
    }

    private void java() {
        int feature = Runtime.version().feature();
        var home = Runtime.version() + " in " + System.getProperty("java.home");
        if (feature >= 25) {
            ok("Java 25", home);
        } else {
            findings.add(
                    new Finding(
                            "Java 25",
                            State.MISSING,
                            home,
                            "install a JDK 25, or point JAVA_HOME to one"));
        }
        if (ModuleLayer.boot().findModule("jdk.incubator.vector").isPresent()) {
            ok("vector module", "jdk.incubator.vector is resolved");
        } else {
            absent(
                    "vector module",
                    "not resolved",
                    "runner jlama: start Java with --add-modules jdk.incubator.vector");
        }
        if (Checkup.class.getModule().isNativeAccessEnabled()) {
            ok("native access", "enabled");
        } else {
            absent(
                    "native access",
                    "not enabled",
                    "native libraries: start Java with --enable-native-access=ALL-UNNAMED");
        }
        ok(
                "processors, memory",
                Runtime.getRuntime().availableProcessors()
                        + " processors, heap up to "
                        + (Runtime.getRuntime().maxMemory() >> 20)
                        + " MiB");
    }

    private void library(String what, String file, String remedy) {
        findLibrary(file)
                .ifPresentOrElse(
                        path -> ok(what, path.toString()),
                        () -> absent(what, file + " not found", remedy));
    }

    private void mooncakeEngine() {
        var what = "Mooncake engine (C)";
        var variable = "KVFERRY_MOONCAKE_TE_LIB";
        var file = "libtransfer_engine.so";
        var remedy =
                "option engine=native of MOONCAKE: build Mooncake with shared libraries and name the file in this variable";
        var named = Optional.ofNullable(System.getenv(variable)).map(Path::of);
        if (named.isPresent() && !Files.isReadable(named.get())) {
            absent(what, variable + " names " + named.get() + ", which cannot be read", remedy);
            return;
        }
        var nowhere = "neither " + variable + " nor " + file + " on the library path";
        named.or(() -> findLibrary(file))
                .ifPresentOrElse(
                        path -> ok(what, path.toString()), () -> absent(what, nowhere, remedy));
    }

    /// Where the dynamic linker would look, without loading anything.
    private static Optional<Path> findLibrary(String name) {
        var folders =
                Stream.of(
                                System.getenv("LD_LIBRARY_PATH"),
                                System.getProperty("java.library.path"),
                                "/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:/lib:/usr/local/lib:/opt/ucx/lib")
                        .filter(path -> path != null && !path.isEmpty())
                        .flatMap(path -> Stream.of(path.split(File.pathSeparator, -1)))
                        .filter(path -> !path.isEmpty())
                        .map(Path::of)
                        .distinct()
                        .toList();
        return folders.stream().flatMap(candidate -> entries(candidate, name).stream()).findFirst();
    }

    /// Files whose names begin so; none where the folder is absent or not ours to read, which the
    /// linker passes over too.
    private static List<Path> entries(Path folder, String prefix) {
        try (var files = Files.list(folder)) {
            return files.filter(file -> String.valueOf(file.getFileName()).startsWith(prefix))
                    .sorted()
                    .toList();
        } catch (IOException e) {
            return List.of();
        }
    }

    private void pythonModules() {
        for (var module : List.of("mooncake", "msgspec", "zmq")) {
            var code =
                    output(
                            "python3",
                            "-c",
                            "import importlib.util as u; print(u.find_spec('"
                                    + module
                                    + "').origin)");
            var what = "Python module " + module;
            code.ifPresentOrElse(
                    origin -> ok(what, origin),
                    () ->
                            absent(
                                    what,
                                    "not found",
                                    "tests against real peers: interop/run installs it into a virtual environment of its own"));
        }
    }

    private void program(String name, String remedy) {
        var path = Optional.ofNullable(System.getenv("PATH")).orElse("");
        Stream.of(path.split(File.pathSeparator, -1))
                .map(dir -> Path.of(dir, name))
                .filter(Files::isExecutable)
                .findFirst()
                .ifPresentOrElse(
                        file -> ok(name, file.toString()),
                        () -> absent(name, "not on PATH", remedy));
    }

    private static Optional<String> output(String... command) {
        try {
            var process =
                    new ProcessBuilder(command)
                            .redirectError(ProcessBuilder.Redirect.DISCARD)
                            .start();
            try (var out = process.getInputStream()) {
                var text = new String(out.readNBytes(4096), StandardCharsets.UTF_8).strip();
                if (!process.waitFor(10, TimeUnit.SECONDS)) {
                    process.destroyForcibly();
                    return Optional.empty();
                }
                return process.exitValue() == 0 ? Optional.of(text) : Optional.empty();
            }
        } catch (IOException e) {
            return Optional.empty();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return Optional.empty();
        }
    }

    private void sharedMemory() {
        var shm = Path.of("/dev/shm");
        try {
            if (Files.isWritable(shm)) {
                ok("/dev/shm", (Files.getFileStore(shm).getUsableSpace() >> 20) + " MiB free");
                return;
            }
        } catch (IOException e) {
            absent("/dev/shm", FileTrouble.describe("cannot be looked at", e), "");
            return;
        }
        absent("/dev/shm", "not there or not writable", "same-host fast path: mount a tmpfs there");
    }

    private void directIo() {
        var what = "O_DIRECT in " + folder;
        Path file;
        try {
            file = Files.createTempFile(folder, "kvferry-doctor", ".tmp");
        } catch (IOException e) {
            absent(
                    what,
                    FileTrouble.describe("cannot write there", e),
                    "name the folder of the disk cache with --folder");
            return;
        }
        try {
            int align = Math.toIntExact(Files.getFileStore(file).getBlockSize());
            try (var channel = FileChannel.open(file, StandardOpenOption.WRITE, direct())) {
                channel.write(
                        ByteBuffer.allocateDirect(2 * align).alignedSlice(align).limit(align), 0);
            }
            ok(
                    what,
                    "works, alignment "
                            + align
                            + " bytes, "
                            + (Files.getFileStore(file).getUsableSpace() >> 20)
                            + " MiB free");
        } catch (IOException | UnsupportedOperationException | ReflectiveOperationException e) {
            absent(
                    what,
                    "refused: " + e.getMessage(),
                    "DiskConnector falls back to buffered I/O; use ext4 or xfs for direct");
        } finally {
            delete(file);
        }
    }

    /// By name, because javac warns of the class, which java.base exports for this very use.
    private static OpenOption direct() throws ReflectiveOperationException {
        var constants = Class.forName("com.sun.nio.file.ExtendedOpenOption").getEnumConstants();
        return (OpenOption)
                Stream.of(constants)
                        .filter(c -> c.toString().equals("DIRECT"))
                        .findFirst()
                        .orElseThrow();
    }

    private void delete(Path file) {
        try {
            Files.delete(file);
        } catch (IOException e) {
            absent(
                    "cleaning up",
                    FileTrouble.describe("cannot delete " + file, e),
                    "delete it by hand");
        }
    }
}
