// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;

import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;

/// Common base of the scheduler halves of KV and encoder-cache connectors. Threads and errors as
/// [SchedulerConnector].
///
/// The engine calls a method that belongs to a feature if the capabilities claim that feature, and
/// only then; what a half overrides makes no difference.
public interface SchedulerHalf extends AutoCloseable {
    /// The handshakes of the worker halves ([ConnectorCapabilities.Feature#HANDSHAKE]). Once, after
    /// all workers registered and before the first request.
    ///
    /// @param byRank one payload per rank, in rank order, EMPTY from a rank with none
    default void onHandshakes(List<Payload> byRank) {}

    /// The reports of all ranks for one step, before the engine acts on them.
    default void onReport(MergedReport report) {}

    /// A transfer of this connector was revoked (abort, deadline). The worker halves learn of it in
    /// the next `beginStep`; for an aborted request this call comes after `finish`. Later plans
    /// should not name the transfer; if one does, the worker halves ignore it.
    default void onRevoked(TransferId id) {}

    /// When this half needs a step although nothing is computed, for example to send a late answer
    /// or to renew a hold; empty for never. A deadline in the past means now. Queried after each
    /// step and whenever the engine is woken, so a deadline that moves earlier requires
    /// [io.kvferry.spi.HostServices#wake]. Open holds, leases and loads keep the engine stepping
    /// anyway.
    default Optional<Deadline> pendingWork() {
        return Optional.empty();
    }

    /// Figures of this half since the last call. Once per step, after [#onReport].
    default Stats drainStats() {
        return Stats.EMPTY;
    }

    /// Cache events of this half since the last call ([ConnectorCapabilities.Feature#EVENTS]). Once
    /// per step, after [#onReport].
    default List<CacheEvent> drainEvents() {
        return List.of();
    }

    /// Deletes everything stored in this namespace ([ConnectorCapabilities.Feature#RESET]): lookups
    /// miss from the moment the stage completes. Only starts the work; what is not done by `limit`
    /// counts as not removed.
    ///
    /// A reset is requested because everything computed so far is now invalid, for example after
    /// new weights were loaded. It therefore covers saves in progress: a save named by an earlier
    /// plan is abandoned, or awaited and deleted; lookups must not find it later. The engine
    /// preempts requests computed before the call, in the next step, so later plans save only what
    /// was computed after it. Hand-offs to consumers named before the call continue.
    ///
    /// @return completes normally; false when something could not be removed
    default CompletionStage<Boolean> resetCache(Deadline limit) {
        return CompletableFuture.completedStage(false);
    }

    /// Frees everything. Idempotent; worker halves may be closed before or after.
    @Override
    void close();

    /// A scheduler half that consists of child connectors; implemented only by composites.
    ///
    /// Its worker halves may report loads and saves of the children under the given ids with a
    /// [TransferId#child] path of their own, which only [#settle] can resolve. An enclosing
    /// composite passes such completions on to [#settle].
    interface Composite extends SchedulerHalf {
        /// Called instead of [#onReport].
        ///
        /// @return what the engine is to act on: a composite may hold a child's failure back while
        ///   it tries the next child, and replaces the children's ids by its own
        MergedReport settle(MergedReport report);

        /// The sources that delivered the tokens of a KV load that ended in the last [#settle], in
        /// order of position, up to the first gap. They differ from the sources in the lookup's
        /// answer if another child replaced one that failed.
        ///
        /// @return empty when only the lookup's answer is known
        default List<LookupResult.Share> delivered(TransferId load) {
            return List.of();
        }

        /// Which children are off, and why; the composite works without them until they are
        /// reopened. Called once per step, after [#settle].
        ///
        /// @return empty while all children are in use
        default String degraded() {
            return "";
        }
    }
}
