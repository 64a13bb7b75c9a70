// SPDX-License-Identifier: Apache-2.0
/// The transfer-backend contract (NIXL-style): moves bytes between registered regions of two
/// agents, or of one agent and a file or object.
///
/// Life cycle, in this order:
///
/// 1. The host finds a [TransferBackendProvider], checks its SPI versions, reads its options
///    strictly.
/// 2. [TransferBackendProvider#open] returns an open [TransferBackend] or throws; there is no
///    half-open state.
/// 3. [TransferBackend#register] before any transfer that names the memory; [Registration#close]
///    after the last ended.
/// 4. [TransferBackend#localMetadata] travels to a peer, whose agent hands it to its
///    [TransferBackend#loadPeer]: whole or not at all, per incarnation.
/// 5. [TransferBackend#prepare] turns descriptor lists into handles, once; [TransferBackend#submit]
///    posts them, often.
/// 6. A [Transfer] completes (sealed [TransferOutcome]), and some time later is *quiesced*: only
///    then may its buffers be used again.
/// 7. [TransferBackend#close] fails what is in flight with CLOSED, waits until it is quiesced,
///    frees everything.
///
/// Capabilities are data ([BackendCapabilities]); the TCK tests each claim, and that what is not
/// claimed is refused.
@NullMarked
package io.kvferry.spi.transfer;

import org.jspecify.annotations.NullMarked;
