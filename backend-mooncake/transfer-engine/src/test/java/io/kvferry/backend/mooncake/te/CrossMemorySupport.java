// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.backend.mooncake.te.peers.EngineProcess;
import io.kvferry.toolkit.crossmemory.CrossMemory;
import io.kvferry.toolkit.crossmemory.ProcessVm;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Optional;

/// Tells what the kernel does not permit here, with the bare call, and skips it with the reason.
public final class CrossMemorySupport {
    private CrossMemorySupport() {}

    /// A process may always copy within its own memory, where the calls exist.
    public static void assumeLinked() {
        Optional<String> missing = ProcessVm.missing();
        assumeTrue(missing.isEmpty(), () -> "cross memory attach: " + missing.orElse(""));
    }

    /// For tests with child processes of their own.
    public static void assumePermittedWithChildren() throws IOException {
        try (var child = new EngineProcess("bytes=4096")) {
            assumePermitted(child);
        }
    }

    static void assumePermitted(EngineProcess peer) {
        assumeLinked();
        assumeTrue(
                permitted(peer.pid(), peer.address),
                () -> "cross memory attach is not permitted here: " + CrossMemory.needs());
    }

    /// Whether this process may read that one, which has memory at the address.
    public static boolean permitted(long pid, long address) {
        if (ProcessVm.missing().isPresent()) {
            return false;
        }
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment here = arena.allocate(1);
            long read =
                    ProcessVm.read(
                            arena.allocate(ProcessVm.STATE_LAYOUT),
                            (int) pid,
                            vector(arena, here.address()),
                            1,
                            vector(arena, address),
                            1);
            if (read != 1 && read != -ProcessVm.EPERM) {
                throw new AssertionError("reading process " + pid + " gave " + read);
            }
            return read == 1;
        }
    }

    private static MemorySegment vector(Arena arena, long address) {
        MemorySegment vector = arena.allocate(ProcessVm.VECTOR_BYTES, Long.BYTES);
        vector.set(ValueLayout.JAVA_LONG, 0, address);
        vector.set(ValueLayout.JAVA_LONG, 8, 1);
        return vector;
    }
}
