// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import io.kvferry.backend.nccl.wire.RequestAddresses;

import java.util.Optional;

/// Names of tensors: `request#layer`, where the request is that of one of vLLM's engines.
///
/// @param transfer what both engines call the transfer, without what their servers add to the id
/// @param layer as the model calls it
record TensorIds(String transfer, String layer) {
    private static final int MOST = 4096;

    static String of(String requestId, String layer) {
        return requestId + "#" + layer;
    }

    /// Empty for what is not of this form.
    static Optional<TensorIds> parse(String tensorId) {
        int at = tensorId.indexOf('#');
        if (at < 0 || tensorId.length() > MOST) {
            return Optional.empty();
        }
        return RequestAddresses.parse(tensorId.substring(0, at))
                .map(found -> new TensorIds(found.transferId(), tensorId.substring(at + 1)));
    }
}
