// SPDX-License-Identifier: Apache-2.0
/// Text to token ids and back, for models whose `tokenizer.json` is byte-level BPE (GPT-2, Llama 3,
/// SmolLM, Qwen).
///
/// It lives here because every model runner reads the same Hugging Face folder, and two runners
/// that are to exchange KV blocks must agree on each id. [BpeTokenizer] is the entry point;
/// [TextStream] turns a token stream into whole characters.
@NullMarked
package io.kvferry.toolkit.tokenizer;

import org.jspecify.annotations.NullMarked;
