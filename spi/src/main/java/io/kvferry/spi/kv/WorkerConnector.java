// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.memory.KvRegion;

import java.util.List;
import java.util.Set;

/// The worker half of one rank: moves the bytes. The package description shows when the engine
/// calls what.
///
/// Threading: every method on the rank's step thread; transfers run on threads of the connector's
/// own.
///
/// Errors: operational failures are [Completion.Failed]. An exception out of a method is a defect:
/// the engine fails every transfer that the connector has open on this rank, closes it, keeps the
/// blocks concerned out of use until [#close] has returned, and goes on without it. After a while
/// it opens both halves again, as another incarnation of the engine, over the same memory:
/// [#provideMemory] is not called then.
public interface WorkerConnector extends WorkerHalf {
    /// The memory of the cache, one region per layer, once, before the first step. It stays in
    /// place until [#close] has returned.
    void registerRegions(List<KvRegion> regions);

    /// A step begins; the plan comes from this step's [SchedulerConnector#buildPlan].
    ///
    /// In this order: stop what [WorkerStep#revoked] names (report [Completion.Revoked] when
    /// nothing of it is in flight any more), start the loads of the plan. On return every SYNC load
    /// of the plan has either been done or failed, unless LAYERWISE_LOAD is claimed. Does not wait
    /// for ASYNC loads.
    ///
    /// A load can be revoked before any plan has named it: a request may be aborted between the
    /// call that assigns its load and the plan of the step. The plan of that step, which may still
    /// name it, comes together with the revocation or after it. Such a load must not start, now or
    /// later, and is answered once, as revoked: the engine reuses its blocks after the answer.
    void beginStep(WorkerStep step);

    /// Before the attention of each layer, in model order, only in steps with a forward pass
    /// ([ConnectorCapabilities.Feature#LAYERWISE_LOAD]). On return the layer's blocks of this
    /// step's SYNC loads are in place, or the load has failed and the report will say so.
    default void awaitLayer(int layerIndex, Deadline limit) {}

    /// After the attention of each layer, in model order, only in steps with a forward pass
    /// ([ConnectorCapabilities.Feature#LAYERWISE_SAVE]). May start the layer's part of a save;
    /// [#endStep] is where it is waited for, and may still say that none of it is worth keeping.
    default void saveLayer(int layerIndex) {}

    /// The forward pass is over, or there was none. Starts saves. Those that are not under a lease
    /// or a hold are finished on return, within [WorkerStep#limit], and report no completion.
    ///
    /// @param notComputed ids of requests of this step for which the model failed or was not run on
    ///   this rank: what this step should have added to their blocks is not there. Nothing of it
    ///   may be stored or sent, whatever the plan says; saves of it that have a completion complete
    ///   as failed. The KV of all other tokens of this step is in the regions. Mostly empty.
    void endStep(WorkerStep step, Set<String> notComputed);
}
