// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import java.time.Duration;

/// Planes over the double.
final class PlanePair {
    private PlanePair() {}

    static NcclPlane plane(NcclDouble nccl, String name, long slotBytes, Duration limit) {
        return NcclPlane.open(
                name,
                "127.0.0.1",
                "127.0.0.1",
                nccl.library(),
                nccl.driver(),
                new NcclPlane.Limits(slotBytes, limit, limit, Duration.ofHours(1), 0));
    }
}
