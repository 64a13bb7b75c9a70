// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import io.kvferry.serving.http.HttpProblem;
import io.kvferry.serving.http.Json;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import tools.jackson.databind.node.ObjectNode;

import java.io.IOException;
import java.util.HashSet;
import java.util.UUID;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.ReentrantLock;

/// The hand-offs that send both legs at the same time, MooncakeConnector's and P2pNcclConnector's.
/// The router draws a transfer id, determines the address at which the decode instance asks for it
/// (for Mooncake it first asks the bootstrap server for the engine), and sends both legs. The
/// decode leg cannot answer before the prefill leg has delivered.
///
/// If the prefill leg fails, the decode leg is cancelled and sent again, with another prefill
/// instance or, if there is none, to compute the prompt itself. If the decode leg fails, the
/// prefill leg is cancelled and its hold is released.
///
/// Threading: any thread; the prefill leg has a virtual thread of its own.
final class MooncakeStage {
    private static final Logger LOG = LoggerFactory.getLogger(MooncakeStage.class);

    private final Backends backends;
    private final DecodeStage decode;
    private final RouterSettings settings;
    final LongAdder failovers = new LongAdder();
    final LongAdder skipped = new LongAdder();

    MooncakeStage(Backends backends, DecodeStage decode, RouterSettings settings) {
        this.backends = backends;
        this.decode = decode;
        this.settings = settings;
    }

    void run(Job job, HeldKv held) throws IOException, InterruptedException {
        var tried = new HashSet<Upstream>();
        int attempts = 0;
        String lastError = "none of them is up";
        while (attempts < settings.maxAttempts()) {
            if (job.call().isCancelled()) {
                throw job.call().whyCancelled();
            }
            var picked = backends.prefill.pick(job.prompt(), tried);
            if (picked.isEmpty()) {
                break;
            }
            var upstream = picked.get();
            tried.add(upstream);
            try {
                var partner = partner(upstream);
                try (var prefill = new PrefillLeg(job, upstream, partner, held.begin(upstream))) {
                    backends.threads.execute(prefill);
                    if (decode.relay(job, prefill.decodeParams(), held, prefill)) {
                        if (held.isFetched() || held.isLost() && !job.call().isCancelled()) {
                            partner.ended(upstream, held.isFetched());
                        }
                        return;
                    }
                    held.giveBack();
                    attempts++;
                    lastError = prefill.relayOrReportError();
                    if (job.call().answered()) {
                        return;
                    }
                    if (!prefill.wasBusy()) {
                        partner.ended(upstream, false);
                    }
                }
            } catch (Bootstrap.UnknownEngine e) {
                lastError = String.valueOf(e.getMessage());
                upstream.failed(lastError);
            }
            failovers.increment();
            LOG.warn("{}: prefill failed: {}", job.call().requestId(), lastError);
        }
        recompute(job, held, lastError);
    }

    /// The prefill instance as announced to the decode instance.
    ///
    /// @param engine null if the hand-off has no engine ids
    private record Partner(String dpRank, ObjectNode params, Bootstrap.@Nullable Engine engine) {
        void ended(Upstream upstream, boolean handedOver) {
            if (engine != null) {
                upstream.bootstrap.ifPresent(bootstrap -> bootstrap.ended(engine, handedOver));
            }
        }
    }

    private Partner partner(Upstream upstream)
            throws Bootstrap.UnknownEngine, InterruptedException {
        var bootstrap = upstream.bootstrap.orElseThrow();
        if (settings.handOff() == HandOff.P2P) {
            return new Partner(
                    "0", Json.object().put("prefill_addr", bootstrap.address.getAuthority()), null);
        }
        var engine = bootstrap.next();
        return new Partner(
                engine.dpRank(),
                Json.object()
                        .put("remote_bootstrap_addr", bootstrap.address.toString())
                        .put("remote_engine_id", engine.engineId()),
                engine);
    }

    private void recompute(Job job, HeldKv held, String lastError)
            throws IOException, InterruptedException {
        if (!settings.recomputeWithoutPrefill()) {
            throw HttpProblem.of(
                    502,
                    "prefill_failed",
                    "no prefill instance could take the request: " + lastError);
        }
        skipped.increment();
        decode.relay(job, Json.object(), held, DecodeStage.Canceller.NONE);
    }

    /// The prefill request of one attempt. Its failure cancels the decode request; closing it
    /// cancels the prefill request.
    private final class PrefillLeg implements Runnable, DecodeStage.Canceller, AutoCloseable {
        private final Job job;
        private final Upstream upstream;
        private final Partner partner;
        private final String token;
        private final String transferId = "xfer-" + UUID.randomUUID();
        private final ReentrantLock lock = new ReentrantLock();
        private @Nullable Leg prefillLeg;
        private @Nullable Leg decodeLeg;
        private @Nullable Answer refusal;
        private String failure = "";
        private boolean closed;

        PrefillLeg(Job job, Upstream upstream, Partner partner, String token) {
            this.job = job;
            this.upstream = upstream;
            this.partner = partner;
            this.token = token;
        }

        ObjectNode decodeParams() {
            return partner.params()
                    .deepCopy()
                    .put("do_remote_decode", false)
                    .put("do_remote_prefill", true)
                    .put("transfer_id", transferId);
        }

        /// Relays the instance's response when another instance would answer the same; else reports
        /// why it failed.
        String relayOrReportError() throws IOException {
            Answer answer;
            lock.lock();
            try {
                answer = refusal;
                if (answer == null || answer.mayRetry()) {
                    return failure;
                }
            } finally {
                lock.unlock();
            }
            answer.relayTo(job.call());
            return failure;
        }

        /// Whether the instance was busy, which says nothing about the engine.
        boolean wasBusy() {
            lock.lock();
            try {
                return refusal != null && refusal.isBusy();
            } finally {
                lock.unlock();
            }
        }

        @Override
        public void run() {
            var params =
                    Json.object()
                            .put("do_remote_decode", true)
                            .put("do_remote_prefill", false)
                            .put("transfer_id", transferId);
            // An end token as the one token of the leg would make P drop the transfer.
            var body = job.prefillBody(params).put("ignore_eos", true);
            try (var leg = backends.leg(upstream, job.deadline())) {
                job.call().onCancel(() -> leg.cancel("the client hung up"));
                if (!begin(leg)) {
                    upstream.undecided();
                    return;
                }
                var response =
                        leg.send(
                                job,
                                body,
                                settings.firstByteTimeout(),
                                "X-data-parallel-rank",
                                partner.dpRank(),
                                HeldKv.HEADER,
                                token);
                var answer = leg.readAnswer(response, PrefillStage.MAX_RESPONSE_BYTES);
                upstream.answered();
                if (answer.status() != 200) {
                    fail(upstream + " answered " + answer.status(), answer);
                }
            } catch (LegException e) {
                if (e.isInstanceAtFault()) {
                    upstream.failed(e);
                } else {
                    upstream.undecided();
                }
                fail(String.valueOf(e.getMessage()), null);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                fail("the router is shutting down", null);
            }
        }

        private boolean begin(Leg leg) {
            lock.lock();
            try {
                prefillLeg = leg;
                return !closed;
            } finally {
                lock.unlock();
            }
        }

        private void fail(String why, @Nullable Answer answer) {
            Leg other;
            lock.lock();
            try {
                if (closed) {
                    return;
                }
                failure = why;
                refusal = answer;
                other = decodeLeg;
            } finally {
                lock.unlock();
            }
            if (other != null && !job.call().answered()) {
                other.cancel("its prefill leg failed: " + why);
            }
        }

        @Override
        public void accept(Leg leg) {
            String why;
            lock.lock();
            try {
                decodeLeg = leg;
                why = failure;
            } finally {
                lock.unlock();
            }
            if (!why.isEmpty()) {
                leg.cancel("its prefill leg failed: " + why);
            }
        }

        @Override
        public boolean fired() {
            lock.lock();
            try {
                return !failure.isEmpty();
            } finally {
                lock.unlock();
            }
        }

        /// The decode request has ended, so the prefill request is cancelled.
        @Override
        public void close() {
            Leg leg;
            lock.lock();
            try {
                closed = true;
                leg = prefillLeg;
            } finally {
                lock.unlock();
            }
            if (leg != null) {
                leg.cancel("its decode request has ended");
            }
        }
    }
}
