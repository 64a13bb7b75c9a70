// SPDX-License-Identifier: Apache-2.0
/// The KV connector contract (vLLM-style): decides what to load and save for which request
/// (scheduler half), and moves the blocks (worker half).
///
/// Life cycle of the two halves. They share nothing but serialised plans, reports and handshakes,
/// so that they can live in different processes; there is one scheduler half per engine and one
/// worker half per rank.
///
/// ```
/// scheduler half (scheduler thread)            worker half (its rank's step thread)
/// ---------------------------------            ------------------------------------
/// KvConnectorProvider.openScheduler            KvConnectorProvider.openWorker
/// [bindBlockPool]                              [provideMemory, or the engine allocates]
///                                              registerRegions (the runner is open)
///                                              [handshake]
/// [onHandshakes]
/// per request: onRequest
///   lookup (often) -> Miss | Pending | Hit
///   onAllocated (blocks, what to load)
/// per step, also an empty one:
///   buildPlan  ----------- plan ------------>  beginStep: obey revocations, start loads (sync ones: finish them)
///                                              [awaitLayer / saveLayer, per layer]
///                                              endStep: start saves, but none of what was not computed
///   onReport  <---------- report ------------  report: completions, failures, stats, events
/// [drainStats, drainEvents, pendingWork]
/// between steps, from any thread: HostServices.wake
/// per request, once: finish -> Release | Hold
/// close                                        close
/// ```
///
/// Rules that hold throughout:
///
/// - Blocks belong to the engine. A worker half touches a block only for a load assigned to it,
///   between `beginStep` and `endStep` of a step whose plan names it, under a [BlockPool.Lease], or
///   under a [FinishDecision.Hold]. Every such right has a [TransferId] and a deadline; when it
///   ends the engine *revokes* it, and the worker half answers with a [Completion.Revoked]
///   completion once nothing of it is in flight.
/// - Each transfer is completed once per rank. The engine drops duplicates and unknown ids; they
///   are never fatal.
/// - What is computed in the step of a SYNC load rests on what that load brought on *every* rank,
///   and a rank knows of its own part only. So blocks behind a SYNC load are published (findable,
///   handed on, or stored under the key by which they will be found) only after `onReport` told the
///   scheduler half that the load was completed on all ranks. It plans their saves in a later step,
///   or at `finish` under a lease, or tells the ranks in a later plan to publish what they took.
///   After a failure the blocks are computed again.
/// - A failed load names every block that was not loaded, not later than it completes.
/// - The engine calls a method that belongs to a [ConnectorCapabilities.Feature] if that is
///   claimed, and only then.
/// - A connector never throws out of a step for an operational failure: that is a
///   [Completion.Failed].
@NullMarked
package io.kvferry.spi.kv;

import org.jspecify.annotations.NullMarked;
