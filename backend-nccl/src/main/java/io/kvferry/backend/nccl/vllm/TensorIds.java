// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import io.kvferry.backend.nccl.wire.RequestAddresses;

import java.util.Optional;
import java.util.regex.Pattern;

/// Names of tensors: `request#layer`, where the request is that of one of vLLM's engines.
///
/// @param transfer what both engines call the transfer, see [#transfer(String)]
/// @param layer as the model calls it
record TensorIds(String transfer, String layer) {
    private static final int MOST = 4096;

    /// vLLM's random suffixes have eight digits, and are none.
    private static final Pattern INDEX = Pattern.compile("-([1-9][0-9]{0,6})(?:-|$)");

    static String of(String requestId, String layer) {
        return requestId + "#" + layer;
    }

    /// Empty for what is not of this form.
    static Optional<TensorIds> parse(String tensorId) {
        int at = tensorId.indexOf('#');
        if (at < 0 || tensorId.length() > MOST) {
            return Optional.empty();
        }
        return transfer(tensorId.substring(0, at))
                .map(found -> new TensorIds(found, tensorId.substring(at + 1)));
    }

    /// What both engines call the transfer of a request: its id without what their servers add, but
    /// with the index of its prompt where that is not 0. A call with several prompts has one id,
    /// and its prompts differ in nothing else (`cmpl-ID-0`, `cmpl-ID-1`).
    ///
    /// @return empty for an id that names no two engines
    static Optional<String> transfer(String requestId) {
        return RequestAddresses.parse(requestId)
                .map(found -> {
                    var unique = "_" + found.unique();
                    int end = requestId.indexOf(unique) + unique.length();
                    var index = INDEX.matcher(requestId).region(end, requestId.length());
                    return index.lookingAt()
                            ? found.transferId() + "-" + index.group(1)
                            : found.transferId();
                });
    }
}
