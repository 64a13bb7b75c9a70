// SPDX-License-Identifier: Apache-2.0
/// The two halves of the disk connector on a block store. The scheduler half asks the folder for
/// the longest prefix and plans; a worker half moves blocks between regions and files. One file
/// holds one block, or a run of consecutive ones ([io.kvferry.backend.disk.kv.FileLayout]), of one
/// group on one rank, all layers of it.
@NullMarked
package io.kvferry.backend.disk.kv;

import org.jspecify.annotations.NullMarked;
