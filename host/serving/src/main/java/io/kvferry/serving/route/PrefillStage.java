// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import io.kvferry.serving.http.HttpProblem;
import io.kvferry.serving.http.Json;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import tools.jackson.databind.node.ObjectNode;

import java.util.HashSet;
import java.util.concurrent.atomic.LongAdder;

/// The prefill leg of the two sequential hand-offs: one token from an instance that works, body
/// read to its end.
///
/// Threading: any thread.
final class PrefillStage {
    private static final Logger LOG = LoggerFactory.getLogger(PrefillStage.class);
    static final int MAX_RESPONSE_BYTES = 16 << 20;

    private final Backends backends;
    private final RouterSettings settings;
    final LongAdder failovers = new LongAdder();
    final LongAdder skipped = new LongAdder();

    PrefillStage(Backends backends, RouterSettings settings) {
        this.backends = backends;
        this.settings = settings;
    }

    /// Result of a prefill leg.
    sealed interface Result {
        /// The params for the decode leg; empty when there are none, and the decode instance
        /// computes the prompt.
        record Ready(ObjectNode params) implements Result {}

        /// The instance refused the request or failed; its response is relayed to the client.
        record Refused(Answer answer) implements Result {}
    }

    /// Runs the leg.
    ///
    /// @param held records each attempt
    /// @throws HttpProblem 502 when no instance works and recomputing is off
    Result run(Job job, HandOff handOff, HeldKv held) throws InterruptedException {
        var body = job.prefillBody(handOff == HandOff.PARAMS ? requestParams() : Json.object());
        var tried = new HashSet<Upstream>();
        int attempts = 0;
        String lastError = "none of them is up";
        while (attempts < settings.maxAttempts() && !job.call().isCancelled()) {
            var picked = backends.prefill.pick(job.prompt(), tried);
            if (picked.isEmpty()) {
                break;
            }
            var upstream = picked.get();
            tried.add(upstream);
            try {
                var answer = attempt(job, upstream, body, handOff, held);
                upstream.answered();
                attempts++;
                if (answer.status() == 200) {
                    return new Result.Ready(responseParams(upstream, answer.body()));
                }
                held.giveBack();
                if (!answer.mayRetry()) {
                    return new Result.Refused(answer);
                }
                lastError = upstream + " answered " + answer.status();
            } catch (LegException e) {
                held.giveBack();
                lastError = String.valueOf(e.getMessage());
                attempts += e.started() ? 1 : 0;
                if (!e.isInstanceAtFault()) {
                    upstream.undecided();
                    break;
                }
                upstream.failed(e);
            }
            failovers.increment();
            LOG.warn("{}: prefill failed: {}", job.call().requestId(), lastError);
        }
        return skip(job, lastError);
    }

    /// No instance took the request.
    private Result skip(Job job, String lastError) {
        if (job.deadline().passed()) {
            throw HttpProblem.of(504, "timeout", "the request did not end in time: " + lastError);
        }
        if (!settings.recomputeWithoutPrefill()) {
            throw HttpProblem.of(
                    502,
                    "prefill_failed",
                    "no prefill instance could take the request: " + lastError);
        }
        skipped.increment();
        return new Result.Ready(Json.object());
    }

    private Answer attempt(
            Job job, Upstream upstream, ObjectNode body, HandOff handOff, HeldKv held)
            throws LegException, InterruptedException {
        try (var leg = backends.leg(upstream, job.deadline())) {
            job.call().onCancel(() -> leg.cancel("the client hung up"));
            var hold =
                    handOff == HandOff.PARAMS
                            ? new String[] {HeldKv.HEADER, held.begin(upstream)}
                            : new String[0];
            var response = leg.send(job, body, settings.firstByteTimeout(), hold);
            return leg.readAnswer(response, MAX_RESPONSE_BYTES);
        }
    }

    /// The params that NIXL's proxies send to P: the keys that P fills in are present and null.
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
            throw new LegException(
                    LegException.Cause.BROKEN, upstream + " answered something that is not JSON");
        }
    }
}
