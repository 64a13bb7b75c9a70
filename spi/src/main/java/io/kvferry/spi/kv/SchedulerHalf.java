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

    /// A right of this connector ended (abort, deadline). The worker halves are told in the next
    /// `beginStep`; for an aborted request this comes after `finish`. Plans from now on need not
    /// name the transfer, and where one still does, the worker halves leave it out.
    default void onRevoked(TransferId id) {}

    /// When this half needs a step although nothing is computed, to send a late answer or to renew
    /// something; empty for not at all. A deadline that has passed means now. Asked after each step
    /// and whenever the engine is woken, so an answer that becomes earlier in between needs
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

    /// Forgets everything stored in this namespace ([ConnectorCapabilities.Feature#RESET]): lookups
    /// miss from the moment the stage completes. Only starts the work; what is not done by `limit`
    /// counts as not removed.
    ///
    /// A reset is asked for because what was computed so far is wrong from now on, for example
    /// after new weights. So it goes for what is still being saved as well: a save that a plan
    /// named before this call is given up, or waited for and removed; it must not be found later.
    /// The engine sees to the rest: requests that it computed before start over, named as preempted
    /// by the next step, so that what a later plan saves was computed after this call. Hand-offs to
    /// a consumer that was named before go on.
    ///
    /// @return completes normally; false when something could not be removed
    default CompletionStage<Boolean> resetCache(Deadline limit) {
        return CompletableFuture.completedStage(false);
    }

    /// Frees everything. Idempotent; worker halves may be closed before or after.
    @Override
    void close();

    /// A scheduler half that consists of others. Nobody else implements this.
    ///
    /// Its worker halves may report the loads and saves of its parts, of which only [#settle]
    /// knows: under ids that are those they were given but for a [TransferId#child] of their own. A
    /// composite around this one passes such completions on to [#settle], whoever wrote either.
    interface Composite extends SchedulerHalf {
        /// Called instead of [#onReport].
        ///
        /// @return what the engine is to act on: a composite may hold a child's failure back while
        ///   it tries the next child, and replaces the children's ids by its own
        MergedReport settle(MergedReport report);

        /// The sources that brought the tokens of a KV load that the last [#settle] ended, in order
        /// of position and as far as they are in place without a gap. They may differ from those
        /// that promised them: where a child failed, another may have replaced it.
        ///
        /// @return empty when the promise of the lookup is all that is known
        default List<LookupResult.Share> delivered(TransferId load) {
            return List.of();
        }

        /// Which of its parts are off, and why: what a composite does without until it can open
        /// them again. Once per step, after [#settle].
        ///
        /// @return empty while all of them are in use
        default String degraded() {
            return "";
        }
    }
}
