// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

/// How the KV cache of a request gets from the prefill to the decode instance.
public enum HandOff {
    /// Prefill first; what it answers in `kv_transfer_params` goes into the decode request (NIXL's
    /// proxies).
    PARAMS,
    /// Prefill first, no params: connectors find blocks by content in a store that both instances
    /// reach.
    CONTENT,
    /// Both legs at once, with a transfer id that the router chooses (MooncakeConnector).
    MOONCAKE,
    /// Both legs at once, with a transfer id that the router chooses: the decode instance asks the
    /// prefill instance before the prompt is computed, and gets each layer as it is
    /// (P2pNcclConnector).
    P2P
}
