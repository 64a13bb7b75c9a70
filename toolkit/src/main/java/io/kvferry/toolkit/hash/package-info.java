// SPDX-License-Identifier: Apache-2.0
/// The chained block hashes of a prompt, by which engines of any implementation identify equal
/// blocks.
@NullMarked
package io.kvferry.toolkit.hash;

import org.jspecify.annotations.NullMarked;
