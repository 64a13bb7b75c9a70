// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.Deadline;

import java.util.Objects;

/// Decision about the blocks of an ended request. `params` go to the client as `kv_transfer_params`
/// of the response.
public sealed interface FinishDecision {
    TransferParams params();

    /// The engine may reuse the blocks at once (those under a [BlockPool.Lease] when that ends).
    record Release(TransferParams params) implements FinishDecision {
        public Release {
            Objects.requireNonNull(params, "params");
        }
    }

    /// The engine keeps the blocks until every rank has completed `id`. At the deadline the engine
    /// revokes `id`. [BlockPool#renewHold] extends the deadline.
    record Hold(TransferId id, Deadline deadline, TransferParams params) implements FinishDecision {
        public Hold {
            Objects.requireNonNull(id, "id");
            Objects.requireNonNull(deadline, "deadline");
            Objects.requireNonNull(params, "params");
        }
    }

    /// Release without params.
    FinishDecision RELEASE = new Release(TransferParams.EMPTY);
}
