// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.model;

import java.util.Objects;

/// One multimodal item of a request.
///
/// @param hash content hash of the item including processor settings; equal hashes mean equal
///   encoder outputs
/// @param position of its first placeholder token in the prompt
/// @param embeddings placeholder tokens, which is rows of the encoder output
/// @param content what the encoder reads; empty where the item is only ever loaded from elsewhere
@SuppressWarnings("ArrayRecordComponent") // owned by the request, never changed
public record EncoderInput(
        String hash, String modality, int position, int embeddings, byte[] content) {
    public EncoderInput {
        Objects.requireNonNull(hash, "hash");
        Objects.requireNonNull(content, "content");
        if (position < 0 || embeddings < 1) {
            throw new IllegalArgumentException(
                    "item " + hash + ": position " + position + ", embeddings " + embeddings);
        }
    }
}
