// SPDX-License-Identifier: Apache-2.0
/// What model runners say about a Hugging Face model folder in the same words, whoever computes it.
@NullMarked
package io.kvferry.toolkit.model;

import org.jspecify.annotations.NullMarked;
