// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.P2pSettings.SendType;
import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireWriter;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;

/// The pushes of one step on a rank, from its beginning to its report: says what is computed, and
/// waits for what was sent: at its end, and with PUT for each layer before, `push_timeout` at most
/// for either. What the model takes between two waits does not count.
///
/// Threading: confined to the step thread.
final class StepPushes {
    private static final Logger LOG = LoggerFactory.getLogger(StepPushes.class);
    private static final int WIRE_VERSION = 1;
    private static final Duration FENCE_LIMIT = Duration.ofSeconds(2);

    private final P2pSettings settings;
    private final Pushes service;
    private List<PushTask> pushes = List.of();

    /// How long this step may still wait for layers.
    private Duration waitLeft = Duration.ZERO;

    private List<String> pushed = List.of();

    /// What sends them.
    interface Pushes {
        /// Begins to push; what may be sent is said to the task.
        PushTask push(P2pPlan.Push plan);

        /// Called for a push that was not requested before the end of its step.
        void giveUp(PushTask task);

        /// A push was given up because it took too long.
        void tooSlow(PushTask task);
    }

    StepPushes(P2pSettings settings, Pushes service) {
        this.settings = settings;
        this.service = service;
    }

    void begin(List<P2pPlan.Push> plans) {
        pushed = List.of();
        pushes = plans.stream().map(service::push).toList();
        waitLeft = settings.pushLimit();
    }

    /// The first `parts` layers are computed. With PUT this waits until they are sent, within the
    /// time limit of the step; after the limit pushes continue as with PUT_ASYNC, so that a slow
    /// push does not delay the others.
    void saved(int parts) {
        if (pushes.isEmpty()) {
            return;
        }
        for (var push : pushes) {
            push.available(parts);
        }
        if (settings.sendType() == SendType.PUT) {
            var limit = Deadline.in(waitLeft);
            for (var push : pushes) {
                if (push.hasTaker()) {
                    push.awaitSent(parts, limit);
                }
            }
            waitLeft = limit.remaining();
        }
    }

    /// The forward pass is over.
    ///
    /// @param stepLimit of the step, of which half is left to others
    void end(Deadline stepLimit, Set<String> notComputed) {
        if (pushes.isEmpty()) {
            return;
        }
        for (var push : pushes) {
            if (notComputed.contains(push.plan().request()) || !push.hasTaker()) {
                service.giveUp(push);
            } else {
                push.commit();
            }
        }
        var limit =
                Deadline.in(settings.pushLimit())
                        .earlier(Deadline.in(stepLimit.remaining().dividedBy(2)));
        var arrived = new ArrayList<String>();
        for (var push : pushes) {
            var outcome = push.await(limit);
            if (outcome == null) {
                push.giveUp();
                service.tooSlow(push);
                if (push.await(Deadline.in(FENCE_LIMIT)) == null) {
                    LOG.warn("push of {} still reads blocks", push.plan().transfer());
                }
            } else if (outcome instanceof DataPlane.Outcome.Done) {
                arrived.add(push.plan().transfer());
            }
        }
        pushes = List.of();
        pushed = List.copyOf(arrived);
    }

    /// What the step's report says of them, once.
    Payload takeReport() {
        if (pushed.isEmpty()) {
            return Payload.EMPTY;
        }
        var out = new WireWriter().i32(pushed.size());
        pushed.forEach(out::string);
        pushed = List.of();
        return out.toPayload(WIRE_VERSION);
    }

    /// The transfers that a rank's report says were pushed.
    ///
    /// @throws KvFerryException [io.kvferry.spi.ErrorCode#PROTOCOL]
    static List<String> readReport(Payload payload) {
        if (payload.isEmpty()) {
            return List.of();
        }
        var in = payload.reader();
        var transfers = new ArrayList<String>();
        for (int n = in.count(4); n > 0; n--) {
            transfers.add(in.string());
        }
        in.end();
        return transfers;
    }
}
