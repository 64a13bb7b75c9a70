// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import io.kvferry.serving.http.HttpProblem;
import io.kvferry.serving.http.Json;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import tools.jackson.databind.node.ObjectNode;

import java.util.concurrent.atomic.LongAdder;

/// The prefill leg of the two sequential hand-offs: one token from the first instance that works,
/// body read to its end.
///
/// Threading: any thread.
final class PrefillStage {
    private static final Logger LOG = LoggerFactory.getLogger(PrefillStage.class);
    private static final int MAX_RESPONSE_BYTES = 16 << 20;

    private final Backends backends;
    private final boolean recompute;
    final LongAdder failovers = new LongAdder();
    final LongAdder skipped = new LongAdder();

    PrefillStage(Backends backends, boolean recompute) {
        this.backends = backends;
        this.recompute = recompute;
    }

    /// What a prefill leg came to.
    sealed interface Result {
        /// The params for the decode leg; empty when there are none, and the decode instance
        /// computes the prompt.
        record Ready(ObjectNode params) implements Result {}

        /// The instance refused the request itself; the client gets to read why.
        record Refused(int status, String contentType, byte[] body) implements Result {}
    }

    /// Runs the leg.
    ///
    /// @throws HttpProblem 502 when no instance works and recomputing is off
    Result run(Job job, HandOff handOff) throws InterruptedException {
        var body = job.prefillBody(handOff == HandOff.PARAMS ? requestParams() : Json.object());
        String lastError = "";
        for (var upstream : backends.prefill.order()) {
            if (job.call().isGone()) {
                break;
            }
            try {
                return attempt(job, upstream, body);
            } catch (LegException e) {
                lastError = String.valueOf(e.getMessage());
                if (!job.call().isGone()) {
                    upstream.failed();
                    failovers.increment();
                    LOG.warn("{}: prefill failed: {}", job.call().requestId(), lastError);
                }
            }
        }
        if (!recompute) {
            throw HttpProblem.of(
                    502,
                    "prefill_failed",
                    "no prefill instance could take the request: " + lastError);
        }
        skipped.increment();
        return new Result.Ready(Json.object());
    }

    private Result attempt(Job job, Upstream upstream, ObjectNode body)
            throws LegException, InterruptedException {
        try (var leg = backends.leg(upstream, job.deadline())) {
            job.call().onGone(() -> leg.cancel("the client went away"));
            var response = leg.send(job, body);
            var bytes = leg.readAll(response, MAX_RESPONSE_BYTES);
            if (response.statusCode() >= 500) {
                throw new LegException(upstream + " answered " + response.statusCode(), true);
            }
            if (response.statusCode() != 200) {
                var type = response.headers().firstValue("Content-Type").orElse("application/json");
                return new Result.Refused(response.statusCode(), type, bytes);
            }
            return new Result.Ready(responseParams(upstream, bytes));
        }
    }

    /// What NIXL's proxies send to P: the keys that P fills in are there and null.
    static ObjectNode requestParams() {
        return Json.object()
                .put("do_remote_decode", true)
                .put("do_remote_prefill", false)
                .putNull("remote_engine_id")
                .putNull("remote_block_ids")
                .putNull("remote_host")
                .putNull("remote_port");
    }

    private static ObjectNode responseParams(Upstream upstream, byte[] bytes) throws LegException {
        try {
            return Json.parseObject(bytes).path("kv_transfer_params") instanceof ObjectNode params
                    ? params
                    : Json.object();
        } catch (HttpProblem e) {
            throw new LegException(upstream + " answered something that is not JSON", true);
        }
    }
}
