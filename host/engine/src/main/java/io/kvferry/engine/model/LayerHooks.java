// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.model;

/// Calls that a runner makes during a forward pass, for layer-wise loads and saves.
public interface LayerHooks {
    /// On return the layer's loaded blocks are in the regions. In model order, once per layer and
    /// step.
    void beforeLayer(int layerIndex);

    /// The layer's KV of this step is in the regions. In model order, once per layer and step.
    void afterLayer(int layerIndex);

    /// Hooks that do nothing.
    LayerHooks NONE =
            new LayerHooks() {
                @Override
                public void beforeLayer(int layerIndex) {}

                @Override
                public void afterLayer(int layerIndex) {}
            };
}
