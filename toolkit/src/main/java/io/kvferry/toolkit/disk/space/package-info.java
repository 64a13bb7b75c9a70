// SPDX-License-Identifier: Apache-2.0
/// How processes share a folder with a quota: how much of it is left and which file would be
/// deleted next ([io.kvferry.toolkit.disk.space.SpaceCatalog]), in the order of last use
/// ([io.kvferry.toolkit.disk.space.Recency]), by one process at a time
/// ([io.kvferry.toolkit.disk.space.EvictionLock]), and room of the file system
/// ([io.kvferry.toolkit.disk.space.FreeSpace]).
///
/// The block store alone uses this. A disk tier of the Mooncake store has its folder alone, which
/// it locks, and evicts buckets of many objects in an order that its own table has; its share of
/// the file system is a number that is set once, as Mooncake's is.
@NullMarked
package io.kvferry.toolkit.disk.space;

import org.jspecify.annotations.NullMarked;
