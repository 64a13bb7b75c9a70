// SPDX-License-Identifier: Apache-2.0
/// What a block is: its name ([io.kvferry.backend.disk.block.BlockKey]), the bytes of its file
/// ([io.kvferry.backend.disk.block.RecordFormat]), how these travel between an open file and the
/// memory of a request, and how that ended ([io.kvferry.backend.disk.block.BlockResult]). They
/// travel through staging as a whole, or piece by piece
/// ([io.kvferry.backend.disk.block.PieceReader], [io.kvferry.backend.disk.block.CachedReader],
/// [io.kvferry.backend.disk.block.GatherWriter]).
///
/// Nothing here knows of folders, of other blocks or of threads. The package `store`, which uses
/// this one, does.
@NullMarked
package io.kvferry.backend.disk.block;

import org.jspecify.annotations.NullMarked;
