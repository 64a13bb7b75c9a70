// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.Finding;
import io.kvferry.toolkit.doctor.Machine;
import io.kvferry.toolkit.files.FileTrouble;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.stream.Stream;

/// The checks of `kvferry doctor`: the host's own, and those of every plugin. None loads a native
/// library, opens a device or leaves anything behind.
final class Checkup {
    private final PluginCatalog catalog;
    private final Path folder;
    private final List<Finding> findings = new ArrayList<>();

    Checkup(PluginCatalog catalog, Path folder) {
        this.catalog = catalog;
        this.folder = folder;
    }

    List<Finding> run() {
        java();
        plugins();
        findings.add(Machine.program("fio", "disk benchmarks: apt install fio"));
        findings.add(Machine.program("ucx_perftest", "transfer benchmarks: apt install ucx-utils"));
        findings.add(Machine.program("iperf3", "transfer benchmarks: apt install iperf3"));
        directIo();
        return List.copyOf(findings);
    }

    private void ok(String what, String found) {
        findings.add(Finding.ok(what, found));
    }

    private void absent(String what, String found, String remedy) {
        findings.add(Finding.optional(what, found, remedy));
    }

    private void java() {
        int feature = Runtime.version().feature();
        var home = Runtime.version() + " in " + System.getProperty("java.home");
        if (feature >= 25) {
            ok("Java 25", home);
        } else {
            findings.add(
                    Finding.missing(
                            "Java 25", home, "install a JDK 25, or point JAVA_HOME to one"));
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

    /// Adds the findings of the plugins; a plugin that fails is itself a finding.
    private void plugins() {
        var printed = new HashSet<String>();
        for (var kind : PluginsCommand.kinds().values()) {
            for (var found : catalog.of(kind).all()) {
                try {
                    found.provider().diagnose().stream()
                            .filter(finding -> printed.add(finding.what()))
                            .forEach(findings::add);
                } catch (RuntimeException | LinkageError e) {
                    absent(
                            "plugin " + found.name(),
                            "diagnose() failed: " + e,
                            "report it to the author of the plugin");
                }
            }
        }
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
