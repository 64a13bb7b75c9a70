// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.multiconnector.agent.TransferPlan.Candidate;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.BackendCapabilities.Route;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.TransferBackend.PeerState;
import io.kvferry.spi.transfer.TransferBackends.Ranking;
import io.kvferry.spi.transfer.TransferRequest;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.OptionalDouble;

/// Ranks the backends for one transfer: filters by capability, then orders by health and by the
/// configured [Ranking]. Deterministic: the same inputs give the same order.
///
/// Threading: any thread.
final class Selector {
    private final List<OpenBackend> slots;
    private final PeerTable peers;
    private final TrackRecord record;
    private final Comparator<Candidate> order;

    Selector(List<OpenBackend> slots, PeerTable peers, TrackRecord record, Ranking ranking) {
        this.slots = slots;
        this.peers = peers;
        this.record = record;
        var fit =
                Comparator.comparing((Candidate one) -> one.rejected().isPresent())
                        .thenComparing(one -> !one.healthy());
        this.order =
                switch (ranking) {
                    case LISTED -> fit.thenComparingInt(Candidate::place);
                    case CHEAPEST ->
                            fit.thenComparingLong(Candidate::costNanos)
                                    .thenComparingInt(Candidate::place);
                };
    }

    /// Both sides are lists of this agent.
    TransferPlan plan(TransferRequest request) {
        var route = route(request);
        var remote = request.remote();
        var candidates = new ArrayList<Candidate>(slots.size());
        for (var slot : slots) {
            candidates.add(candidate(slot, request, route));
        }
        candidates.sort(order);
        return new TransferPlan(
                request.operation(),
                peerName(remote.peer()),
                route,
                remote.descriptors().count(),
                remote.descriptors().bytes(),
                candidates);
    }

    private static Route route(TransferRequest request) {
        return new Route(
                request.operation(),
                request.local().descriptors().kind(),
                request.remote().descriptors().kind(),
                scope(request.remote().peer()));
    }

    private static Route.Scope scope(Optional<PeerId> peer) {
        return peer.isPresent() ? Route.Scope.REMOTE : Route.Scope.LOOPBACK;
    }

    private static String peerName(Optional<PeerId> peer) {
        return peer.map(PeerId::agent).orElse("");
    }

    private Candidate candidate(OpenBackend slot, TransferRequest request, Route route) {
        var local = (AgentPrepared) request.local();
        var remote = (AgentPrepared) request.remote();
        var peer = peerName(remote.peer());
        var rejected = rejected(slot, request, route, local, remote);
        boolean healthy = record.healthy(slot.name(), peer);
        if (rejected.isPresent()) {
            return new Candidate(
                    slot.name(), rejected, slot.place(), healthy, 0, OptionalDouble.empty());
        }
        return new Candidate(
                slot.name(),
                rejected,
                slot.place(),
                healthy,
                remote.require(slot.name()).estimate(request.operation()),
                record.correction(
                        slot.name(), request.operation(), peer, remote.descriptors().bytes()));
    }

    private Optional<Failure> rejected(
            OpenBackend slot,
            TransferRequest request,
            Route route,
            AgentPrepared local,
            AgentPrepared remote) {
        var can = slot.capabilities();
        if (!can.routes().contains(route)) {
            return unsupported("has no route " + route);
        }
        if (request.notification().isPresent() && !can.has(BackendCapabilities.Feature.NOTIFY)) {
            return unsupported("has no notifications");
        }
        int alignment = Math.min(local.alignment(), remote.alignment());
        if (alignment < can.alignment()) {
            return unsupported(
                    "needs addresses and lengths in multiples of "
                            + can.alignment()
                            + ", these are multiples of "
                            + alignment);
        }
        if (remote.peer().isPresent()
                && peers.state(remote.peer().get(), slot.name()) == PeerState.LOST) {
            return Optional.of(
                    new Failure(ErrorCode.PEER_LOST, "does not reach " + remote.peer().get()));
        }
        return unprepared(slot, local, "local").or(() -> unprepared(slot, remote, "remote"));
    }

    private static Optional<Failure> unsupported(String why) {
        return Optional.of(new Failure(ErrorCode.UNSUPPORTED, why));
    }

    private static Optional<Failure> unprepared(OpenBackend slot, AgentPrepared list, String side) {
        if (list.on(slot.name()).isPresent()) {
            return Optional.empty();
        }
        var why =
                list.refusal(slot.name())
                        .orElse(
                                new Failure(
                                        ErrorCode.NOT_FOUND,
                                        "no such memory is registered with it"));
        return Optional.of(
                new Failure(
                        why.code(),
                        "the " + side + " list is not prepared on it: " + why.message()));
    }

    /// The least that any backend with such a route expects; empty when none has one.
    Optional<Long> estimate(
            Operation operation, Optional<PeerId> peer, int descriptors, long bytes) {
        var least = Optional.<Long>empty();
        for (var slot : slots) {
            boolean can =
                    slot.capabilities().routes().stream()
                            .anyMatch(route ->
                                    route.operation() == operation && route.scope() == scope(peer));
            if (!can
                    || (peer.isPresent()
                            && peers.state(peer.get(), slot.name()) == PeerState.LOST)) {
                continue;
            }
            long estimate =
                    slot.call(
                                    "estimateNanos",
                                    backend ->
                                            backend.estimateNanos(
                                                    operation, peer, descriptors, bytes))
                            .orElse(TrackRecord.guess(bytes));
            long cost =
                    Math.round(
                            estimate
                                    * record.correction(
                                                    slot.name(), operation, peerName(peer), bytes)
                                            .orElse(1));
            least = Optional.of(Math.min(cost, least.orElse(Long.MAX_VALUE)));
        }
        return least;
    }
}
