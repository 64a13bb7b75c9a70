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
/// per item of a request:
///   lookup (often) -> Miss | Pending | Hit
///   onAllocated (item, load or encode)
/// per step, also an empty one:
///   buildPlan  ----------- plan ------------>  beginStep: obey revocations, start loads into the encoder cache
///                                              save: once per item that was encoded in this step
///                                              endStep
///   onReport  <---------- report ------------  report
/// onFreed: the cache dropped an item
/// per request, once: finish
/// close                                        close
/// ```
///
/// A failed load is never put into the cache: its completion is Failed, and the engine encodes the
/// item itself or, where it has no encoder, fails the requests that need it.
@NullMarked
package io.kvferry.spi.ec;

import org.jspecify.annotations.NullMarked;
