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
/// Errors: operational failures are [Completion.Failed]. An exception thrown by a method is a
/// defect: the engine fails all transfers that the connector has open on this rank, closes it,
/// keeps the affected blocks out of use until [#close] has returned, and continues without it.
/// Later it reopens both halves, as another incarnation of the engine, over the same memory;
/// [#provideMemory] is not called again.
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
    /// A load can be revoked before a plan names it, if its request is aborted between the
    /// assignment and the plan of the step. That plan, which may still name it, arrives with the
    /// revocation or after it. Such a load must not be started, now or later, and is answered once,
    /// as revoked; after the answer the engine reuses its blocks.
    void beginStep(WorkerStep step);

    /// Before the attention of each layer, in model order, only in steps with a forward pass
    /// ([ConnectorCapabilities.Feature#LAYERWISE_LOAD]). On return the layer's blocks of this
    /// step's SYNC loads are in place, or the load has failed and the report will say so.
    default void awaitLayer(int layerIndex, Deadline limit) {}

    /// Called after the attention of each layer, in model order, only in steps with a forward pass
    /// ([ConnectorCapabilities.Feature#LAYERWISE_SAVE]). May start the layer's part of a save.
    /// [#endStep] waits for it and may still say that the result must be discarded.
    default void saveLayer(int layerIndex) {}

    /// The forward pass is over, or there was none. Starts saves. Saves without a lease or hold are
    /// finished on return, within [WorkerStep#limit], and report no completion.
    ///
    /// @param notComputed ids of requests in this step for which the model failed or did not run on
    ///   this rank: their blocks lack the tokens of this step. These tokens must not be stored or
    ///   sent, whatever the plan says; their saves that report a completion end as failed. The KV
    ///   of all other tokens of this step is in the regions. Usually empty.
    void endStep(WorkerStep step, Set<String> notComputed);
}
