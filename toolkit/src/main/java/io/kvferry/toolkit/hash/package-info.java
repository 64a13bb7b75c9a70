// SPDX-License-Identifier: Apache-2.0
/// The chained block hashes of a prompt: what makes blocks of two engines, of any make, the same
/// block.
@NullMarked
package io.kvferry.toolkit.hash;

import org.jspecify.annotations.NullMarked;
