// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.multiconnector.agent.TransferPlan.Candidate;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.observe.TraceEvent;
import io.kvferry.spi.transfer.TransferBackend.PeerState;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.ArrayList;
import java.util.Map;
import java.util.TreeMap;

/// Figures of the agent's transfers: those that the next choice uses, and those that are reported.
///
/// Threading: any thread.
final class AgentTelemetry {
    private static final Logger LOG = LoggerFactory.getLogger(AgentTelemetry.class);

    private final String agent;
    private final EventSink events;
    private final PeerTable peers;
    private final TrackRecord record = new TrackRecord(System::nanoTime);

    AgentTelemetry(String agent, EventSink events, PeerTable peers) {
        this.agent = agent;
        this.events = events;
        this.peers = peers;
    }

    TrackRecord record() {
        return record;
    }

    /// Tells how a transfer is to go.
    void decided(TransferRequest request, TransferPlan plan) {
        if (events.equals(EventSink.NONE)) {
            return;
        }
        var rejected = new ArrayList<TraceEvent.Rejected>();
        for (var one : plan.candidates()) {
            if (!one.backend().equals(plan.chosen())) {
                rejected.add(
                        new TraceEvent.Rejected(
                                one.backend(),
                                one.rejected().map(Failure::message).orElse(rank(one))));
            }
        }
        emit(
                new TraceEvent.Decision(
                        request.tag(),
                        "transfer-backend",
                        "agent " + agent,
                        plan.chosen(),
                        rejected,
                        plan.bytes()));
    }

    private static String rank(Candidate one) {
        return "cost " + one.costNanos() / 1000 + " us, listed as number " + (one.place() + 1);
    }

    /// Takes in how an attempt ended.
    void attempted(
            RunningTransfer transfer, Candidate candidate, TransferOutcome outcome, long nanos) {
        var plan = transfer.plan();
        var name = candidate.backend();
        switch (outcome) {
            case TransferOutcome.Done(long bytes, _, _) -> {
                record.measured(
                        name,
                        plan.operation(),
                        plan.peer(),
                        bytes,
                        candidate.estimateNanos(),
                        nanos);
                record.succeeded(name, plan.peer());
                transfer.request()
                        .remote()
                        .peer()
                        .ifPresent(peer ->
                                peers.changed(peer, name, PeerState.READY, "transfer done"));
            }
            case TransferOutcome.Failed(var failure, _) -> {
                if (failure.code() != ErrorCode.BACKPRESSURE) {
                    record.failed(name, plan.peer());
                }
                if (failure.code().category() == ErrorCode.Category.PEER) {
                    suspect(transfer, name, failure);
                }
                incident(transfer, name, failure.toString());
            }
            case TransferOutcome.TimedOut() -> {
                record.failed(name, plan.peer());
                incident(transfer, name, "deadline passed");
            }
            case TransferOutcome.Cancelled() -> {}
        }
    }

    private void suspect(RunningTransfer transfer, String backend, Failure failure) {
        transfer.request()
                .remote()
                .peer()
                .filter(peer -> peers.state(peer, backend) != PeerState.LOST)
                .ifPresent(
                        peer -> peers.changed(peer, backend, PeerState.SUSPECT, failure.message()));
    }

    private void incident(RunningTransfer transfer, String backend, String detail) {
        if (!events.equals(EventSink.NONE)) {
            emit(
                    new TraceEvent.Incident(
                            transfer.request().tag(),
                            "transfer-failed",
                            "agent " + agent,
                            Map.of("backend", backend, "detail", detail)));
        }
    }

    /// Tells of memory that some backends did not take.
    void refusedMemory(MemoryTable.Area area) {
        if (!area.refused().isEmpty() && !events.equals(EventSink.NONE)) {
            var details = new TreeMap<String, String>();
            area.refused().forEach((backend, why) -> details.put(backend, why.toString()));
            emit(new TraceEvent.Incident("", "memory-refused", "agent " + agent, details));
        }
    }

    /// A listener that throws must not keep a transfer from ending.
    private void emit(TraceEvent event) {
        try {
            events.emit(event);
        } catch (RuntimeException e) {
            LOG.warn("agent {}: nobody could be told of {}", agent, event, e);
        }
    }
}
