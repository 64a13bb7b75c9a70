// SPDX-License-Identifier: Apache-2.0
/// A content-addressed block store in a folder: one file per block, published whole or not at all,
/// checked on every read, bounded by a quota, shared by several processes. It knows bytes and keys
/// only: a block is what its user saves as one, such as a KV block or a run of consecutive ones.
///
/// Start reading at [io.kvferry.backend.disk.store.BlockStore]. A request travels from there
/// through the toolkit's `IoPool` (queues, deadlines) and `IoWorker` into `BlockWriter` or
/// `BlockReader` (the protocol, step by step), which use the package `block` (names of blocks,
/// bytes of a file) and `StoreCore` (what the stores of one process share: the catalog, scans and
/// eviction).
@NullMarked
package io.kvferry.backend.disk.store;

import org.jspecify.annotations.NullMarked;
