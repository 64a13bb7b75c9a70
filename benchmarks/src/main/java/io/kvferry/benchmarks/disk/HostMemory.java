// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import io.kvferry.toolkit.memory.HostPages;

import java.lang.foreign.Arena;

/// Free memory of a virtual machine that its host has given. A host takes memory back when it has
/// been free for a few seconds (free page reporting of the balloon device) and gives it again at
/// the first touch, which takes a millisecond per MiB. Without this, a turn that writes to the page
/// cache would be as fast as what somebody else has just freed is large.
final class HostMemory {
    private HostMemory() {}

    /// Touches so much memory and frees it.
    static void take(long bytes) {
        try (var arena = Arena.ofConfined()) {
            HostPages.allocate(bytes, arena);
        }
    }
}
