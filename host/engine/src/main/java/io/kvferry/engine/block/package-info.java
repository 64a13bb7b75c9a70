// SPDX-License-Identifier: Apache-2.0
/// The block pool: reference counts, the free list in order of last use, and the index over chained
/// block hashes that makes free blocks a prefix cache. All of it works on ids and arrays; nothing
/// here allocates per block.
@NullMarked
package io.kvferry.engine.block;

import org.jspecify.annotations.NullMarked;
