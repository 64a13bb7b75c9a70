// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

/// A worker half that saves each layer as soon as it is computed.
public interface LayerwiseSave {
    /// Called after the attention of each layer, in model order, only in steps with a forward pass.
    /// Starts the save; `endStep` is where it is waited for.
    void saveLayer(int layerIndex);
}
