// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.crossmemory;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;

/// What Linux's cross memory attach needs on this machine, in words.
public final class CrossMemory {
    private static final Path SCOPE = Path.of("/proc/sys/kernel/yama/ptrace_scope");

    private CrossMemory() {}

    /// Whether a process can copy the memory of others on this host, as far as it can tell alone.
    ///
    /// @param consent what lets a peer be copied where Yama's ptrace_scope is 1; empty where there
    ///   is no such option
    public static String availability(String consent) {
        Optional<String> missing = ProcessVm.missing();
        if (missing.isPresent()) {
            return "no cross memory attach: " + missing.get();
        }
        return switch (scope()) {
            case "0" -> "cross memory attach between processes of one user";
            case "1" ->
                    "cross memory attach needs %sCAP_SYS_PTRACE or kernel.yama.ptrace_scope=0 (now 1)"
                            .formatted(consent.isEmpty() ? "" : consent + ", ");
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
