// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.memory.KvRegion;

import java.util.List;

/// The worker half of one rank: moves the bytes. The package description shows when the engine
/// calls what.
///
/// Threading: every method on the rank's step thread, [LayerwiseLoad] and [LayerwiseSave] included;
/// transfers run on threads of the connector's own.
///
/// Errors: operational failures are [TransferResult.Failed] completions. An exception out of a
/// method is a defect: the engine fails every transfer that the connector has open on this rank,
/// closes it, keeps the blocks concerned out of use until [#close] has returned, and goes on
/// without it.
public interface WorkerConnector extends AutoCloseable {
    /// The memory of the cache, one region per layer, once, before the first step. It stays in
    /// place until [#close] has returned.
    void registerRegions(List<KvRegion> regions);

    /// A step begins; the plan comes from this step's [SchedulerConnector#buildPlan].
    ///
    /// In this order: stop what [WorkerStep#revoked] names (report [TransferResult.Revoked] when
    /// nothing of it is in flight any more), start the loads of the plan. On return every SYNC load
    /// of the plan has either been done or failed, unless this half is a [LayerwiseLoad]. Does not
    /// wait for ASYNC loads.
    ///
    /// A load can be revoked before any plan has named it: a request may be aborted between the
    /// call that assigns its load and the plan of the step. The plan of that step, which may still
    /// name it, comes together with the revocation or after it. Such a load must not start, now or
    /// later, and is answered once, as revoked: the engine reuses its blocks after the answer.
    void beginStep(WorkerStep step);

    /// The model failed, or left a request of the step out: what the plan says to save may never
    /// have been computed. None of it may be stored; saves with a completion complete as failed.
    /// Before [#endStep], and only in such steps.
    default void forwardFailed(WorkerStep step) {}

    /// The forward pass is over (or there was none): the KV of this step's tokens is in the
    /// regions, unless [#forwardFailed] said otherwise. Starts saves. Those that are not under a
    /// lease or a hold are finished on return, within [WorkerStep#limit], and report no completion.
    void endStep(WorkerStep step);

    /// What happened since the last report. Once per step, after [#endStep], also on empty steps;
    /// never blocks.
    StepReport report(WorkerStep step);

    /// Aborts what is in flight, waits (bounded) until no thread of the connector touches a region,
    /// frees everything. Idempotent.
    @Override
    void close();
}
