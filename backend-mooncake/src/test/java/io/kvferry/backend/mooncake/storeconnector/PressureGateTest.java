// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

/// Saves after the store was full, and the line about tiers.
class PressureGateTest {
    private final PressureGate gate = new PressureGate();
    private int calls;

    private int save(String request, boolean full) {
        if (!gate.skips(request)) {
            calls++;
            gate.tried(request, full, full);
        }
        return calls;
    }

    @Test
    void aRequestThatFoundTheStoreFullWaitsForAnothersSuccess() {
        assertThat(save("a", true)).isEqualTo(1);
        assertThat(save("a", false)).isEqualTo(1);
        assertThat(save("b", false)).isEqualTo(2);
        assertThat(save("a", false)).isEqualTo(3);
    }

    @Test
    void otherFailuresAreNoPressure() {
        gate.tried("a", false, true);
        assertThat(gate.skips("a")).isFalse();
        gate.tried("a", true, true);
        gate.tried("b", false, true);
        assertThat(gate.skips("a")).as("a failure clears nothing").isTrue();
        gate.tried("b", false, false);
        assertThat(gate.skips("a")).isFalse();
    }

    @Test
    void theTierLineIsVllms() {
        assertThat(TierLog.line("req-1", new int[] {0, 1, 2}, new long[] {256, 256, -704}))
                .isEqualTo(
                        "Mooncake load tier summary: req_id=req-1 batch_keys=3 memory_keys=1"
                                + " disk_keys=1 unknown_keys=1 success_keys=2 failed_keys=1"
                                + " bytes_by_tier={'memory': 256, 'disk': 256, 'unknown': 0}");
    }

    @Test
    void resultsThatAreMissingCountAsFailed() {
        assertThat(TierLog.line("r", new int[] {0, 0}, new long[] {10}))
                .contains("success_keys=1 failed_keys=1");
    }
}
