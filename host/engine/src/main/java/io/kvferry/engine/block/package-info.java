// SPDX-License-Identifier: Apache-2.0
/// The block pool: reference counts, the free list in order of last use, chained block hashes, and
/// the index that makes free blocks a prefix cache. All of it works on ids and arrays; nothing here
/// allocates per block.
@NullMarked
package io.kvferry.engine.block;

import org.jspecify.annotations.NullMarked;
