// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import io.kvferry.serving.http.HttpProblem;
import io.kvferry.serving.http.Json;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import tools.jackson.databind.node.ObjectNode;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashSet;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Consumer;

/// The decode leg: relays the answer of a decode instance. Nothing is sent to the client before the
/// first byte of the body has arrived. If the instance fails before that, another one replaces it;
/// if it fails later, the stream ends with an error event.
///
/// Threading: any thread.
final class DecodeStage {
    private static final Logger LOG = LoggerFactory.getLogger(DecodeStage.class);

    /// How an event begins by which an instance says that the request failed; kvferry's and vLLM's.
    /// No text of an answer contains it: in JSON its quotes are escaped.
    private static final String ERROR_EVENT = "data: {\"error\"";

    private final Backends backends;
    private final RouterSettings settings;
    final LongAdder failovers = new LongAdder();
    final LongAdder brokenStreams = new LongAdder();

    DecodeStage(Backends backends, RouterSettings settings) {
        this.backends = backends;
        this.settings = settings;
    }

    /// Cancels a decode request for another reason than a client that disconnected.
    interface Canceller extends Consumer<Leg> {
        Canceller NONE = _ -> {};

        /// Whether this canceller ended the leg, not the instance.
        default boolean fired() {
            return false;
        }
    }

    /// Refuses a request that no decode instance can take, before a prefill instance works for it.
    ///
    /// @throws HttpProblem 503 when every decode instance is down
    void requireInstance() throws InterruptedException {
        if (backends.decode.upCount() == 0) {
            backends.probeNow(backends.decode);
        }
        if (backends.decode.upCount() == 0) {
            throw HttpProblem.of(
                    503,
                    "decode_unavailable",
                    "none of the "
                            + backends.decode.members().size()
                            + " decode instances is up; try again later");
        }
    }

    /// Relays the request, to another instance when the first one fails.
    ///
    /// @param params for the first instance that sees the request; another one gets none, because
    ///   what P holds can be fetched once
    /// @param held notified when an instance answers a request that carries `params`
    /// @return false when `canceller` ended the leg before anything went to the client
    /// @throws HttpProblem 502 or 503 when no instance took the request, 504 when the deadline
    ///   passed
    boolean relay(Job job, ObjectNode params, HeldKv held, Canceller canceller)
            throws IOException, InterruptedException {
        var carried = params;
        var tried = new HashSet<Upstream>();
        int attempts = 0;
        String lastError = "none of them is up";
        @Nullable Answer lastAnswer = null;
        while (attempts < settings.maxAttempts() && !job.call().isCancelled()) {
            var picked = backends.decode.pick(job.prompt(), tried);
            if (picked.isEmpty() || job.deadline().passed() || canceller.fired()) {
                picked.ifPresent(Upstream::undecided);
                break;
            }
            var upstream = picked.get();
            tried.add(upstream);
            try {
                lastAnswer = attempt(job, upstream, carried, held, canceller);
                if (lastAnswer == null) {
                    return true;
                }
                attempts++;
                lastError = upstream + " answered " + lastAnswer.status();
                // A busy instance did not start to fetch.
                carried = lastAnswer.isBusy() ? carried : Json.object();
            } catch (LegException e) {
                lastError = String.valueOf(e.getMessage());
                if (!e.isInstanceAtFault()) {
                    upstream.undecided();
                    break;
                }
                upstream.failed(e);
                attempts += e.started() ? 1 : 0;
                carried = e.started() ? Json.object() : carried;
            }
            failovers.increment();
            LOG.warn("{}: decode failed: {}", job.call().requestId(), lastError);
        }
        return giveUp(job, canceller, lastAnswer, lastError);
    }

    private static boolean giveUp(
            Job job, Canceller canceller, @Nullable Answer lastAnswer, String lastError)
            throws IOException {
        if (job.call().isCancelled()) {
            throw job.call().whyCancelled();
        }
        if (canceller.fired()) {
            return false;
        }
        if (job.deadline().passed()) {
            throw HttpProblem.of(504, "timeout", "the request did not end in time: " + lastError);
        }
        if (lastAnswer != null) {
            lastAnswer.relayTo(job.call());
            return true;
        }
        throw HttpProblem.of(
                502, "decode_failed", "no decode instance could take the request: " + lastError);
    }

    /// @return an error response that is worth a retry at another instance, or null when the client
    ///   has been answered
    private @Nullable Answer attempt(
            Job job, Upstream upstream, ObjectNode params, HeldKv held, Canceller canceller)
            throws IOException, InterruptedException {
        try (var leg = backends.leg(upstream, job.deadline())) {
            job.call().onCancel(() -> leg.cancel("the client hung up"));
            canceller.accept(leg);
            var response = leg.send(job, job.withParams(params), firstByte(job));
            if (response.statusCode() == 200 && job.streams()) {
                relayStream(job, leg, response, upstream, params, held);
                return null;
            }
            var answer = leg.readAnswer(response, settings.maxResponseBytes());
            upstream.answered();
            if (answer.status() == 200 && !params.isEmpty()) {
                held.fetched();
            } else if (answer.status() >= 500 && !answer.isBusy() && !params.isEmpty()) {
                held.lost();
            }
            if (answer.mayRetry()) {
                return answer;
            }
            answer.relayTo(job.call());
            return null;
        }
    }

    /// A stream begins with its first token; anything else when it is finished.
    private Duration firstByte(Job job) {
        return job.streams() ? settings.firstByteTimeout() : settings.requestTimeout();
    }

    private void relayStream(
            Job job,
            Leg leg,
            HttpResponse<InputStream> response,
            Upstream upstream,
            ObjectNode params,
            HeldKv held)
            throws IOException {
        var type = response.headers().firstValue("Content-Type").orElse("text/event-stream");
        var buffer = new byte[16 << 10];
        try (var _ = leg.watchIdle(settings.idleTimeout())) {
            int n = leg.read(response, buffer);
            if (n < 0) {
                throw new LegException(
                        LegException.Cause.BROKEN,
                        response.uri() + " ended its stream before the first byte");
            }
            upstream.answered();
            try (var out = job.call().stream(200, type)) {
                boolean whole = relayRest(job, leg, response, upstream, out, buffer, n);
                if (!params.isEmpty()) {
                    if (whole) {
                        held.fetched();
                    } else {
                        held.lost();
                    }
                }
            }
        }
    }

    /// @return whether the stream ended regularly, with an answer
    private boolean relayRest(
            Job job,
            Leg leg,
            HttpResponse<InputStream> response,
            Upstream upstream,
            OutputStream out,
            byte[] buffer,
            int first)
            throws IOException {
        int n = first;
        var tail = "";
        boolean failed = false;
        while (n >= 0) {
            out.write(buffer, 0, n);
            out.flush();
            var text = tail + new String(buffer, 0, n, StandardCharsets.ISO_8859_1);
            failed |= text.contains(ERROR_EVENT);
            tail = text.substring(Math.max(0, text.length() - ERROR_EVENT.length()));
            try {
                n = leg.read(response, buffer);
            } catch (LegException e) {
                if (job.call().isCancelled()) {
                    out.write(errorEvent(tail, job.call().whyCancelled()));
                    return false;
                }
                brokenStreams.increment();
                if (e.isInstanceAtFault()) {
                    upstream.failed(e);
                }
                LOG.warn("{}: stream broke: {}", job.call().requestId(), e.getMessage());
                out.write(
                        errorEvent(
                                tail,
                                HttpProblem.of(
                                        502,
                                        "decode_failed",
                                        "the decode instance failed in mid-stream: "
                                                + e.getMessage())));
                return false;
            }
        }
        return !failed;
    }

    /// @param tail the end of what was relayed: an error event must begin after a whole one
    private static byte[] errorEvent(String tail, HttpProblem problem) {
        var gap = tail.endsWith("\n\n") ? "" : "\n\n";
        return (gap + "data: " + problem.toJson() + "\n\ndata: [DONE]\n\n")
                .getBytes(StandardCharsets.UTF_8);
    }
}
