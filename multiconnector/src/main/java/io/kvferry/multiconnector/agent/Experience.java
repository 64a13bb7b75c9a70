// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.multiconnector.agent.TransferPlan.Candidate;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.observe.Event;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.transfer.PeerState;
import io.kvferry.spi.transfer.TransferOutcome;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.ArrayList;
import java.util.Map;

/// What the agent learns from the transfers it does, for the next choice, and what it tells of
/// them.
///
/// Threading: any thread.
final class Experience {
    private static final Logger LOG = LoggerFactory.getLogger(Experience.class);

    private final String agent;
    private final EventSink events;
    private final PeerTable peers;
    private final CostBook costs = new CostBook();
    private final HealthBook health = new HealthBook(System::nanoTime);

    Experience(String agent, EventSink events, PeerTable peers) {
        this.agent = agent;
        this.events = events;
        this.peers = peers;
    }

    CostBook costs() {
        return costs;
    }

    HealthBook health() {
        return health;
    }

    /// A peer that is gone for good takes what was learned of it with it.
    void forget(String peer) {
        costs.forget(peer);
        health.forget(peer);
    }

    /// Tells how a transfer is to go.
    void decided(TransferSpec spec, TransferPlan plan) {
        if (events.equals(EventSink.NONE)) {
            return;
        }
        var rejected = new ArrayList<Event.Rejected>();
        for (var one : plan.candidates()) {
            if (!one.backend().equals(plan.chosen())) {
                rejected.add(new Event.Rejected(one.backend(), one.rejected().orElse(rank(one))));
            }
        }
        emit(
                new Event.Decision(
                        spec.tag(),
                        "transfer-backend",
                        "agent " + agent,
                        plan.chosen(),
                        rejected,
                        plan.bytes()));
    }

    private static String rank(Candidate one) {
        return "cost " + one.costNanos() / 1000 + " us, priority " + one.priority();
    }

    /// Takes in how an attempt ended.
    void attempted(
            RunningTransfer transfer, Candidate candidate, TransferOutcome outcome, long nanos) {
        var plan = transfer.plan();
        var name = candidate.backend();
        switch (outcome) {
            case TransferOutcome.Done(long bytes, _, _) -> {
                costs.measured(
                        name,
                        plan.operation(),
                        plan.peer(),
                        bytes,
                        candidate.estimateNanos(),
                        nanos);
                health.succeeded(name, plan.peer());
                transfer.spec()
                        .remote()
                        .peer()
                        .ifPresent(peer ->
                                peers.changed(peer, name, PeerState.READY, "transfer done"));
            }
            case TransferOutcome.Failed(var failure, _) -> {
                if (failure.code() != ErrorCode.BACKPRESSURE) {
                    health.failed(name, plan.peer());
                }
                if (failure.code().category() == ErrorCode.Category.PEER) {
                    suspect(transfer, name, failure);
                }
                incident(transfer, name, failure.toString());
            }
            case TransferOutcome.TimedOut() -> {
                health.failed(name, plan.peer());
                incident(transfer, name, "deadline passed");
            }
            case TransferOutcome.Cancelled() -> {}
        }
    }

    private void suspect(RunningTransfer transfer, String backend, Failure failure) {
        transfer.spec()
                .remote()
                .peer()
                .filter(peer -> peers.state(peer, backend) != PeerState.LOST)
                .ifPresent(
                        peer -> peers.changed(peer, backend, PeerState.SUSPECT, failure.message()));
    }

    private void incident(RunningTransfer transfer, String backend, String detail) {
        if (!events.equals(EventSink.NONE)) {
            emit(
                    new Event.Incident(
                            transfer.spec().tag(),
                            "transfer-failed",
                            "agent " + agent,
                            Map.of("backend", backend, "detail", detail)));
        }
    }

    /// A listener that throws must not keep a transfer from ending.
    private void emit(Event event) {
        try {
            events.emit(event);
        } catch (RuntimeException e) {
            LOG.warn("agent {}: nobody could be told of {}", agent, event, e);
        }
    }
}
