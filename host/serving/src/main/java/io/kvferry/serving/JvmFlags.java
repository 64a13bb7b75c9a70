// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving;

import io.kvferry.toolkit.secret.FleetSecret;

import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;

/// The options that a JVM with kvferry in it wants, for child processes of this one.
public final class JvmFlags {
    private static final String AOT_CACHE = "-XX:AOTCache=";

    private JvmFlags() {}

    /// Native access; the vector module where this JVM has it (Jlama); silence about libraries that
    /// still use Unsafe; the collector that needs no threads of its own; the name of the file with
    /// the fleet's secret; the installation's plugin folder; the AOT cache that this JVM was told
    /// to start from.
    public static List<String> forChild() {
        return forChild(ManagementFactory.getRuntimeMXBean().getInputArguments());
    }

    /// @param own the options of this JVM
    static List<String> forChild(List<String> own) {
        var flags =
                new ArrayList<>(
                        List.of(
                                "--enable-native-access=ALL-UNNAMED",
                                "--sun-misc-unsafe-memory-access=allow",
                                "-XX:+UseSerialGC"));
        if (ModuleLayer.boot().findModule("jdk.incubator.vector").isPresent()) {
            flags.add("--add-modules=jdk.incubator.vector");
        }
        FleetSecret.file()
                .ifPresent(file ->
                        flags.add("-D" + FleetSecret.PROPERTY + "=" + file.toAbsolutePath()));
        var plugins = System.getProperty(AssembledEngine.INSTALLED_PLUGINS, "");
        if (!plugins.isEmpty()) {
            flags.add("-D" + AssembledEngine.INSTALLED_PLUGINS + "=" + plugins);
        }
        own.stream().filter(option -> option.startsWith(AOT_CACHE)).forEach(flags::add);
        return List.copyOf(flags);
    }
}
