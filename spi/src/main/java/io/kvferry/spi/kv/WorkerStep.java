// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.wire.Payload;

import java.util.List;

/// One step as a worker half sees it.
///
/// @param number counts up from 1
/// @param plan this connector's plan; of a composite, the composite's
/// @param revoked rights that ended; each is named in one step and answered by one completion per
///   rank
/// @param forward whether the model runs in this step
/// @param limit no call of this step may take longer
public record WorkerStep(
        long number, Payload plan, List<TransferId> revoked, boolean forward, Deadline limit) {}
