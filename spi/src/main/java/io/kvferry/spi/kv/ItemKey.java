// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

/// A multimodal item whose placeholders lie in a block, as the block's hash covers it.
///
/// @param hash of the item
/// @param offset of its first placeholder from the first token of the block; negative when the item
///   began in a block before
public record ItemKey(String hash, int offset) {}
