// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import io.kvferry.spi.Finding;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/// Whether the kernel lets processes of this user copy between each other's memory. Derived from
/// the kernel's settings, since an actual attempt needs a second process.
final class CrossMemoryCheck {
    private static final String WHAT = "cross memory attach";
    private static final String ELSE = "MooncakeConnector uses TCP within a host";

    /// Bit of a capability mask, linux/capability.h.
    private static final int CAP_SYS_PTRACE = 19;

    private CrossMemoryCheck() {}

    static Finding here() {
        return of(Path.of("/proc/sys/kernel/yama/ptrace_scope"), Path.of("/proc/self/status"));
    }

    /// @param scope Yama's setting; a kernel without it has the rule of 0
    /// @param status of this process
    static Finding of(Path scope, Path status) {
        try {
            if (!Files.isReadable(status)) {
                return absent("no " + status, ELSE + "; Linux has it");
            }
            var level = Files.exists(scope) ? Files.readString(scope).strip() : "0";
            if (level.equals("0")) {
                return ok("between processes of one user and equal capabilities (ptrace_scope 0)");
            }
            if (!level.equals("3") && hasPtrace(status)) {
                return ok("this process has CAP_SYS_PTRACE (ptrace_scope " + level + ")");
            }
            return absent("ptrace_scope is " + level, ELSE + remedy(level));
        } catch (IOException | NumberFormatException e) {
            return absent(e.toString(), ELSE);
        }
    }

    private static String remedy(String level) {
        return switch (level) {
            case "1" ->
                    "; set its option cross_memory_ptracer, or sysctl kernel.yama.ptrace_scope=0, or give CAP_SYS_PTRACE";
            case "3" -> "; this ptrace_scope lasts until the next boot";
            default -> "; sysctl kernel.yama.ptrace_scope=0, or give CAP_SYS_PTRACE";
        };
    }

    private static boolean hasPtrace(Path status) throws IOException {
        try (var lines = Files.lines(status)) {
            return lines.filter(line -> line.startsWith("CapEff:"))
                    .mapToLong(line ->
                            Long.parseUnsignedLong(line.substring("CapEff:".length()).strip(), 16))
                    .anyMatch(capabilities -> (capabilities >>> CAP_SYS_PTRACE & 1) == 1);
        }
    }

    private static Finding ok(String found) {
        return Finding.ok(WHAT, found);
    }

    private static Finding absent(String found, String remedy) {
        return Finding.optional(WHAT, found, remedy);
    }
}
