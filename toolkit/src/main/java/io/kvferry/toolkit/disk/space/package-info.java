// SPDX-License-Identifier: Apache-2.0
/// How processes share a folder with a quota: how much of it is left and which file would be
/// deleted next ([io.kvferry.toolkit.disk.space.SpaceCatalog]), in the order of last use
/// ([io.kvferry.toolkit.disk.space.Recency]), by one process at a time
/// ([io.kvferry.toolkit.disk.space.EvictionLock]), and room of the file system
/// ([io.kvferry.toolkit.disk.space.FreeSpace]).
@NullMarked
package io.kvferry.toolkit.disk.space;

import org.jspecify.annotations.NullMarked;
