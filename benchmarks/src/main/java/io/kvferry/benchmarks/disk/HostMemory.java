// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import io.kvferry.toolkit.memory.AvailableMemory;

import java.lang.foreign.Arena;

/// Free memory of a virtual machine that its host has given. A host takes memory back when it has
/// been free for a few seconds (free page reporting of the balloon device) and gives it again at
/// the first touch, which takes a millisecond per MiB. Without this, a turn that writes to the page
/// cache would be as fast as what somebody else has just freed is large.
final class HostMemory {
    private static final long AT_ONCE = 1 << 20;
    private static final long MOST_BYTES =
            Math.min(Runtime.getRuntime().maxMemory(), AvailableMemory.now().bytes()) / 2;

    private HostMemory() {}

    /// Touches so much memory and frees it, or half of what this JVM may have beside its heap.
    /// Small pages, because they come from the same small rests of free memory as those of the page
    /// cache; what is touched in huge pages leaves these out.
    static void take(long bytes) {
        try (var arena = Arena.ofConfined()) {
            long most = Math.min(bytes, MOST_BYTES);
            for (long at = 0; at < most; at += AT_ONCE) {
                arena.allocate(AT_ONCE); // in zeros, so touched
            }
        }
    }
}
