// SPDX-License-Identifier: Apache-2.0
/// The encoder-cache connector contract: moves encoder outputs (image and audio embeddings) between
/// an encoder engine and its consumers. Same halves, same vocabulary and same rules as
/// [io.kvferry.spi.kv]; the unit is an *item*, named by its content hash and shared by all requests
/// that contain it.
///
/// ```
/// scheduler half                               worker half
/// --------------                               -----------
/// EcConnectorProvider.openScheduler            EcConnectorProvider.openWorker
///                                              [provideMemory, or the engine allocates]
///                                              registerMemory (the runner is open)
///                                              [handshake]
/// [onHandshakes]
/// per item of a request:
///   lookup (often) -> Miss | Pending | Hit
///   onAllocated (item, load or encode)
/// per step, also an empty one:
///   buildPlan  ----------- plan ------------>  beginStep: obey revocations, start loads into the encoder cache
///                                              save: once per item that was encoded in this step
///                                              endStep
///   onReport  <---------- report ------------  report
/// [drainStats, drainEvents, pendingWork]
/// between steps, from any thread: HostServices.wake
/// onFreed: the cache dropped an item
/// per request, once: finish
/// close                                        close
/// ```
///
/// The encoder cache of a rank is one piece of memory, registered once; an item is a range of it. A
/// range is given to another item only when every right on it has ended on every rank.
///
/// A failed load is never put into the cache: its completion is Failed, and the engine encodes the
/// item itself or, where it has no encoder, fails the requests that need it.
@NullMarked
package io.kvferry.spi.ec;

import org.jspecify.annotations.NullMarked;
