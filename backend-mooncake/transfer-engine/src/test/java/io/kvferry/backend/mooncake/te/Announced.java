// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import java.util.Optional;

/// Transfers that are followed by a notification.
public final class Announced {
    private Announced() {}

    public static EngineRequest by(Notification notification, EngineRequest request) {
        return new EngineRequest(
                request.operation(),
                request.segmentName(),
                request.ranges(),
                request.deadline(),
                request.expectedIncarnation(),
                request.capability(),
                request.memoryKey(),
                Optional.of(notification));
    }
}
