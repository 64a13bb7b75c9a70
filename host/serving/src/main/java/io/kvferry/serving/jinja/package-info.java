// SPDX-License-Identifier: Apache-2.0
/// The part of Python's Jinja 2 that chat templates are written in, with Python's semantics: a
/// template renders to what Hugging Face renders, or is refused.
@NullMarked
package io.kvferry.serving.jinja;

import org.jspecify.annotations.NullMarked;
