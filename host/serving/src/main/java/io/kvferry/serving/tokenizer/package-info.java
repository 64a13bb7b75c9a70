// SPDX-License-Identifier: Apache-2.0
/// Tokenizers and chat templates of real models: Hugging Face's tokenizers through DJL, templates
/// as Hugging Face renders them.
@NullMarked
package io.kvferry.serving.tokenizer;

import org.jspecify.annotations.NullMarked;
