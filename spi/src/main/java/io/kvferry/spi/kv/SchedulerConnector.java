// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.wire.Payload;

/// The scheduler half: decides what is loaded and saved, moves no bytes. The package description
/// shows when the engine calls what.
///
/// Threading: every method on the engine's scheduler thread; none may block on I/O (a lookup that
/// needs the network answers [LookupResult.Pending] and works in the background). Views passed in
/// are valid during the call only.
///
/// Errors: a thrown [io.kvferry.spi.KvFerryException] is taken as "no" (a miss, nothing saved, a
/// release), logged and counted; other exceptions are defects and treated the same way with code
/// INTERNAL.
public interface SchedulerConnector extends SchedulerHalf {
    /// The engine's blocks, for a connector that leases some of them for saves that outlive a step
    /// or renews its holds ([ConnectorCapabilities.Feature#BLOCK_LEASES] or
    /// [ConnectorCapabilities.Feature#HOLD]). Once, before the first request.
    default void bindBlockPool(BlockPool pool) {}

    /// A request entered the engine; it may wait for long before the first [#lookup]. Start leases
    /// and prefetches. Always paired with one [#finish].
    default void onRequest(RequestView request) {}

    /// How many tokens beyond the `localTokens` that the engine has itself can be loaded right now.
    ///
    /// Called for a request that has nothing computed: any number of times, since the answer may be
    /// Pending, blocks may be short, or the request may be preempted and come back. It promises
    /// nothing until [#onAllocated] accepts it, so it must leave no state that assumes so.
    ///
    /// The tokens must be the longest prefix loadable now: `localTokens + tokens` is at most the
    /// request's tokens for an ASYNC hit and one less for a SYNC hit; `localTokens` is a multiple
    /// of the block size, and so is the sum, for every group, unless it is the end of the prompt.
    LookupResult lookup(RequestView request, int localTokens);

    /// The request has its blocks: all of `blocks` are allocated, and tokens `load.fromToken()` to
    /// `load.toToken()` are this connector's to load. An empty load means that there is nothing to
    /// load (no hit, another connector won, or the second call once an async load is done). A
    /// non-empty call may follow an empty one of the same attempt: a composite that fell back on
    /// this connector. The load goes into the next plan, also a SYNC one whose request takes no
    /// part in that step: a composite lets a request wait for it.
    void onAllocated(RequestView request, BlockTable blocks, LoadAssignment load);

    /// Instructions for the worker halves in this step. Called once per step, also when nothing is
    /// scheduled; drains what gathered since the last one. [Payload#EMPTY] when there is nothing to
    /// say.
    Payload buildPlan(StepView step);

    /// The request ended. Once per request, for every cause, also for one never scheduled (`blocks`
    /// is empty then).
    FinishDecision finish(RequestView request, BlockTable blocks, FinishReason reason);
}
