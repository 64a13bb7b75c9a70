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

    /// Returns how many tokens beyond the engine's own `localTokens` can be loaded now.
    ///
    /// Called for a request without computed tokens, any number of times: after a Pending answer,
    /// when blocks are short, or when the request was preempted. The answer is not a commitment
    /// until [#onAllocated] assigns the load, so it must leave no state that assumes one.
    ///
    /// The tokens must be the longest prefix loadable now. `localTokens + tokens` is at most the
    /// request's tokens for an ASYNC hit, and one less for a SYNC hit. `localTokens` is a multiple
    /// of the block size; the sum must be too, for every group, unless it is the end of the prompt.
    LookupResult lookup(RequestView request, int localTokens);

    /// The request has its blocks: all of `blocks` are allocated, and this connector must load
    /// tokens `load.fromToken()` to `load.toToken()`. An empty load means that there is nothing to
    /// load: no hit, another connector won, or the second call after an async load. A non-empty
    /// call may follow an empty one of the same attempt, when a composite falls back on this
    /// connector. The load goes into the next plan, even a SYNC one whose request is not scheduled
    /// in that step because a composite lets it wait.
    void onAllocated(RequestView request, BlockTable blocks, LoadAssignment load);

    /// Returns the instructions for the worker halves in this step. Called once per step, also when
    /// nothing is scheduled; drains the instructions collected since the last call. [Payload#EMPTY]
    /// for none.
    Payload buildPlan(StepView step);

    /// The request ended. Called exactly once per request, whatever the reason, also for a request
    /// that was never scheduled (`blocks` is then empty).
    FinishDecision finish(RequestView request, BlockTable blocks, FinishReason reason);
}
