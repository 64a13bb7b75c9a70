// SPDX-License-Identifier: Apache-2.0
/// The reference model runner: a Llama forward pass over a Hugging Face folder, in plain Java and
/// float32.
///
/// Its one unusual promise is that logits and KV are equal bit for bit whatever the chunking, the
/// batch, the machine or the origin of the blocks, because every sum is taken in one fixed order
/// and no library function whose last bit may vary is called. Tests compare cache bits with it.
/// [LlamaModel] is the forward pass, [LlamaWeights] reads the folder, [MakeModel] writes a tiny
/// one, the engine turns logits into tokens.
@NullMarked
package io.kvferry.runner.llama;

import org.jspecify.annotations.NullMarked;
