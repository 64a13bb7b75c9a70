// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.Deadline;

/// A worker half whose SYNC loads proceed while earlier layers compute.
public interface LayerwiseLoad {
    /// Called before the attention of each layer, in model order, only in steps with a forward
    /// pass. On return the layer's blocks of this step's SYNC loads are in place, or the load has
    /// failed and the report will say so.
    void awaitLayer(int layerIndex, Deadline limit);
}
