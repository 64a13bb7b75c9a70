// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.multiconnector.agent.TransferPlan.Candidate;
import io.kvferry.spi.Failure;
import io.kvferry.spi.memory.MemoryKind;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.PeerState;
import io.kvferry.spi.transfer.Route;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.Set;

/// Ranks the backends for one transfer: those that can and may do it, by health, priority, expected
/// cost and, when all is equal, name. The same question gets the same answer in every run.
///
/// Threading: any thread.
final class Selector {
    private static final Comparator<Candidate> ORDER =
            Comparator.comparing((Candidate one) -> one.rejected().isPresent())
                    .thenComparing(one -> !one.healthy())
                    .thenComparing(Comparator.comparingInt(Candidate::priority).reversed())
                    .thenComparingLong(Candidate::costNanos)
                    .thenComparing(Candidate::backend);

    /// What has to be decided on.
    ///
    /// @param local the local side; empty while the transfer does not exist yet
    record Question(
            Operation operation,
            Route route,
            Optional<PeerId> peer,
            int descriptors,
            long bytes,
            int alignment,
            boolean notifies,
            Set<String> require,
            Set<String> never,
            Optional<PreparedList> local,
            Optional<PreparedList> remote) {
        /// A transfer that does not exist yet.
        static Question of(
                Operation operation,
                Optional<PeerId> peer,
                MemoryKind local,
                MemoryKind remote,
                int descriptors,
                long bytes) {
            return new Question(
                    operation,
                    new Route(operation, local, remote, scope(peer)),
                    peer,
                    descriptors,
                    bytes,
                    1 << 30,
                    false,
                    Set.of(),
                    Set.of(),
                    Optional.empty(),
                    Optional.empty());
        }

        static Question of(TransferSpec spec) {
            var local = spec.local();
            var remote = spec.remote();
            return new Question(
                    spec.operation(),
                    new Route(
                            spec.operation(),
                            local.descriptors().kind(),
                            remote.descriptors().kind(),
                            scope(remote.peer())),
                    remote.peer(),
                    remote.descriptors().count(),
                    remote.descriptors().bytes(),
                    Math.min(local.alignment(), remote.alignment()),
                    spec.notification().isPresent(),
                    spec.require(),
                    spec.never(),
                    Optional.of(local),
                    Optional.of(remote));
        }

        private static Route.Scope scope(Optional<PeerId> peer) {
            return peer.isPresent() ? Route.Scope.REMOTE : Route.Scope.LOOPBACK;
        }

        String peerName() {
            return peer.map(PeerId::agent).orElse("");
        }
    }

    private final List<BackendSlot> slots;
    private final PeerTable peers;
    private final CostBook costs;
    private final HealthBook health;

    Selector(List<BackendSlot> slots, PeerTable peers, Experience experience) {
        this.slots = slots;
        this.peers = peers;
        this.costs = experience.costs();
        this.health = experience.health();
    }

    TransferPlan plan(Question question) {
        var candidates = new ArrayList<Candidate>(slots.size());
        for (var slot : slots) {
            candidates.add(candidate(slot, question));
        }
        candidates.sort(ORDER);
        return new TransferPlan(
                question.operation(),
                question.peerName(),
                question.route(),
                question.descriptors(),
                question.bytes(),
                candidates);
    }

    private Candidate candidate(BackendSlot slot, Question question) {
        var rejected = rejected(slot, question);
        long estimate = 0;
        var correction = OptionalDouble.empty();
        if (rejected.isEmpty()) {
            estimate = estimate(slot, question);
            correction =
                    costs.correction(
                            slot.name(),
                            question.operation(),
                            question.peerName(),
                            question.bytes());
        }
        boolean healthy = health.healthy(slot.name(), question.peerName());
        return new Candidate(slot.name(), rejected, slot.priority(), healthy, estimate, correction);
    }

    /// Asked when the list was prepared, so that choosing costs no call into a backend; asked now
    /// when there is none.
    private static long estimate(BackendSlot slot, Question question) {
        if (question.remote().isPresent()) {
            var entry = question.remote().get().entries().get(slot.name());
            if (entry != null) {
                return entry.estimate(question.operation());
            }
        }
        return slot.call(
                        "estimateNanos",
                        backend ->
                                backend.estimateNanos(
                                        question.operation(),
                                        question.peer(),
                                        question.descriptors(),
                                        question.bytes()))
                .orElse(CostBook.guess(question.bytes()));
    }

    private Optional<String> rejected(BackendSlot slot, Question question) {
        var can = slot.capabilities();
        if (!question.require().isEmpty() && !question.require().contains(slot.name())) {
            return Optional.of("not among the required " + question.require());
        }
        if (question.never().contains(slot.name())) {
            return Optional.of("excluded by the caller");
        }
        if (!can.serves(question.route())) {
            return Optional.of("has no route " + question.route());
        }
        if (question.notifies() && !can.has(BackendCapabilities.Feature.NOTIFY)) {
            return Optional.of("has no notifications");
        }
        // Longer lists are posted in pieces; a single range cannot be.
        if (question.local().map(PreparedList::longest).orElse(0L) > can.maxBytes()) {
            return Optional.of("takes at most " + can.maxBytes() + " bytes at once");
        }
        if (question.alignment() % can.alignment() != 0) {
            return Optional.of(
                    "needs addresses and lengths in multiples of "
                            + can.alignment()
                            + ", these are multiples of "
                            + question.alignment());
        }
        if (question.peer().isPresent()
                && peers.state(question.peer().get(), slot.name()) == PeerState.LOST) {
            return Optional.of("does not reach " + question.peer().get());
        }
        return unprepared(slot, question.local(), "local")
                .or(() -> unprepared(slot, question.remote(), "remote"));
    }

    private static Optional<String> unprepared(
            BackendSlot slot, Optional<PreparedList> list, String side) {
        if (list.isEmpty() || list.get().entries().containsKey(slot.name())) {
            return Optional.empty();
        }
        return Optional.of(
                "the "
                        + side
                        + " list is not prepared on it: "
                        + list.get()
                                .refusal(slot.name())
                                .map(Failure::message)
                                .orElse("no such memory is registered with it"));
    }
}
