// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import io.kvferry.backend.mooncake.te.internal.samehost.ProcessVm;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;

/// What Linux's cross memory attach needs on this machine, in words.
public final class CrossMemory {
    private static final Path SCOPE = Path.of("/proc/sys/kernel/yama/ptrace_scope");

    private CrossMemory() {}

    /// Whether engines can copy between the memory of processes on this host, as far as one process
    /// alone can tell.
    public static String availability() {
        Optional<String> missing = ProcessVm.missing();
        if (missing.isPresent()) {
            return "no cross memory attach: " + missing.get();
        }
        return switch (scope()) {
            case "0" -> "cross memory attach between processes of one user";
            case "1" ->
                    "cross memory attach needs cross_memory_ptracer=true, CAP_SYS_PTRACE or kernel.yama.ptrace_scope=0 (now 1)";
            case String other ->
                    "cross memory attach needs CAP_SYS_PTRACE or kernel.yama.ptrace_scope=0 (now %s)"
                            .formatted(other);
        };
    }

    /// What the kernel wants of whoever copies.
    public static String needs() {
        return "both processes must be of the same user and of equal capabilities, and kernel.yama.ptrace_scope 0 (here %s), or this one needs CAP_SYS_PTRACE"
                .formatted(scope());
    }

    /// A kernel without Yama has the rule of 0.
    private static String scope() {
        try {
            return Files.exists(SCOPE) ? Files.readString(SCOPE).strip() : "0";
        } catch (IOException e) {
            return "unknown";
        }
    }
}
