// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.memory;

import org.jspecify.annotations.Nullable;

import java.util.Arrays;

/// The gates that one piece of work holds at the moment.
///
/// Threading: one thread enters and exits; [#holds] is for others and may say yes for a gate that
/// was left just now.
public final class GateSet {
    private @Nullable UseGate[] gates = new @Nullable UseGate[8];
    private volatile int size;

    /// False when the gate is closed; then nothing was entered.
    public boolean enter(UseGate gate) {
        int count = size;
        if (count > 0 && gates[count - 1] == gate) {
            return true;
        }
        if (count == gates.length) { // before it is entered: want of memory must leave none behind
            gates = Arrays.copyOf(gates, count * 2);
        }
        if (!gate.enter()) {
            return false;
        }
        gates[count] = gate;
        size = count + 1;
        return true;
    }

    /// Whether somebody waits for one of them.
    public boolean anyClosed() {
        int count = size;
        for (int i = 0; i < count; i++) {
            UseGate gate = gates[i];
            if (gate != null && gate.isClosed()) {
                return true;
            }
        }
        return false;
    }

    public void exitAll() {
        int count = size;
        @Nullable UseGate[] held = gates;
        size = 0;
        for (int i = 0; i < count; i++) {
            UseGate gate = held[i];
            held[i] = null;
            if (gate != null) {
                gate.exit();
            }
        }
    }

    public boolean holds(UseGate gate) {
        int count = size;
        @Nullable UseGate[] seen = gates;
        for (int i = 0; i < Math.min(count, seen.length); i++) {
            if (seen[i] == gate) {
                return true;
            }
        }
        return false;
    }
}
