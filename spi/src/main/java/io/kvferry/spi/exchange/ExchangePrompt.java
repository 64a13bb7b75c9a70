// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.exchange;

import io.kvferry.spi.memory.BlockHash;

import java.util.List;

/// A prompt by everything that a store may know it by.
///
/// @param tokens token ids; not copied, do not change them
/// @param itemHashes hashes of its multimodal items in order of position
/// @param blockHashes of the prompt's whole blocks
@SuppressWarnings("ArrayRecordComponent") // owned by the prompt, never changed
public record ExchangePrompt(int[] tokens, List<String> itemHashes, List<BlockHash> blockHashes) {
    public ExchangePrompt {
        itemHashes = List.copyOf(itemHashes);
        blockHashes = List.copyOf(blockHashes);
    }
}
