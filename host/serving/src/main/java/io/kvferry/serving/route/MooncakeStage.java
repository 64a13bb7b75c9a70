// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import io.kvferry.serving.http.HttpProblem;
import io.kvferry.serving.http.Json;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.LongAdder;

/// MooncakeConnector's hand-off: the router draws a transfer id, asks the bootstrap server which
/// engine it will be, and sends both legs at once. The decode leg cannot begin to answer before the
/// prefill leg has delivered; when the prefill leg fails, the decode leg is cut and sent again, to
/// meet another prefill instance or, without any, to compute.
///
/// Threading: any thread; the prefill leg has a virtual thread of its own.
final class MooncakeStage {
    private static final Logger LOG = LoggerFactory.getLogger(MooncakeStage.class);
    private static final int MAX_RESPONSE_BYTES = 16 << 20;

    private final Backends backends;
    private final DecodeStage decode;
    private final boolean recompute;
    final LongAdder failovers = new LongAdder();
    final LongAdder skipped = new LongAdder();

    MooncakeStage(Backends backends, DecodeStage decode, boolean recompute) {
        this.backends = backends;
        this.decode = decode;
        this.recompute = recompute;
    }

    void run(Job job) throws IOException, InterruptedException {
        String lastError = "";
        for (var upstream : backends.prefill.order()) {
            if (job.call().isGone()) {
                throw new IOException("the client went away");
            }
            try {
                var engine = upstream.bootstrap.orElseThrow().next();
                var prefill = new PrefillLeg(job, upstream, engine, "xfer-" + UUID.randomUUID());
                backends.threads.execute(prefill);
                if (decode.relay(job, prefill.decodeParams(), prefill)) {
                    return;
                }
                lastError = prefill.error();
            } catch (HttpProblem e) {
                throw e;
            } catch (IOException e) {
                if (job.call().isGone() || job.call().answered()) {
                    throw e;
                }
                lastError = String.valueOf(e.getMessage());
            }
            upstream.failed();
            failovers.increment();
            LOG.warn("{}: prefill failed: {}", job.call().requestId(), lastError);
        }
        if (!recompute) {
            throw HttpProblem.of(
                    502,
                    "prefill_failed",
                    "no prefill instance could take the request: " + lastError);
        }
        skipped.increment();
        decode.relay(job, Json.object(), DecodeStage.Canceller.NONE);
    }

    /// The prefill leg, and the string by which its failure pulls the decode leg down.
    private final class PrefillLeg implements Runnable, DecodeStage.Canceller {
        private final Job job;
        private final Upstream upstream;
        private final Bootstrap.Engine engine;
        private final String transferId;
        private final AtomicReference<String> failure = new AtomicReference<>("");
        private final AtomicReference<Leg> decodeLeg = new AtomicReference<>();
        private final AtomicBoolean fired = new AtomicBoolean();

        PrefillLeg(Job job, Upstream upstream, Bootstrap.Engine engine, String transferId) {
            this.job = job;
            this.upstream = upstream;
            this.engine = engine;
            this.transferId = transferId;
        }

        tools.jackson.databind.node.ObjectNode decodeParams() {
            return Json.object()
                    .put("do_remote_decode", false)
                    .put("do_remote_prefill", true)
                    .put(
                            "remote_bootstrap_addr",
                            upstream.bootstrap.orElseThrow().address.toString())
                    .put("remote_engine_id", engine.engineId())
                    .put("transfer_id", transferId);
        }

        String error() {
            return failure.get();
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
                job.call().onGone(() -> leg.cancel("the client went away"));
                var response = leg.send(job, body, "X-data-parallel-rank", engine.dpRank());
                leg.readAll(response, MAX_RESPONSE_BYTES);
                if (response.statusCode() != 200) {
                    throw new LegException(upstream + " answered " + response.statusCode(), true);
                }
            } catch (LegException e) {
                fail(String.valueOf(e.getMessage()));
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                fail("the router is shutting down");
            }
        }

        private void fail(String why) {
            failure.set(why);
            fired.set(true);
            var leg = decodeLeg.get();
            if (leg != null && !job.call().answered()) {
                leg.cancel("its prefill leg failed: " + why);
            }
        }

        @Override
        public void accept(Leg leg) {
            decodeLeg.set(leg);
            if (fired.get()) {
                leg.cancel("its prefill leg failed: " + failure.get());
            }
        }

        @Override
        public boolean fired() {
            return fired.get();
        }
    }
}
