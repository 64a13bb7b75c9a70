// SPDX-License-Identifier: Apache-2.0
/// Memory and cache shapes: typed memory ranges, the geometry of a KV cache ([KvCacheSpec],
/// [KvRegion]), block hashes and the namespace that keeps unlike caches apart. Values only; nothing
/// here moves a byte.
@NullMarked
package io.kvferry.spi.memory;

import org.jspecify.annotations.NullMarked;
