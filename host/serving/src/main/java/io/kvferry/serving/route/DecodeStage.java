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
import java.util.Arrays;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Consumer;

/// The decode leg: relays what a decode instance answers. Nothing is sent to the client before the
/// first byte of the body is here, so that an instance that dies until then is replaced by the next
/// one; after that, a dead instance ends the stream with an error event.
///
/// Threading: any thread.
final class DecodeStage {
    private static final Logger LOG = LoggerFactory.getLogger(DecodeStage.class);

    private final Backends backends;
    private final RouterSettings settings;
    final LongAdder failovers = new LongAdder();
    final LongAdder brokenStreams = new LongAdder();

    DecodeStage(Backends backends, RouterSettings settings) {
        this.backends = backends;
        this.settings = settings;
    }

    /// Where the handler's thread may be stopped from while the leg runs, other than by the client.
    interface Canceller extends Consumer<Leg> {
        Canceller NONE = _ -> {};

        /// Whether it, and not the instance, ended the leg.
        default boolean fired() {
            return false;
        }
    }

    /// Relays the request, trying one instance after the other.
    ///
    /// @param params for the first instance; the next ones get them only if the one before was
    ///   never reached, because what P holds can be fetched once
    /// @return false when `canceller` ended the leg before anything went to the client
    /// @throws HttpProblem 502 when no instance could be reached, 504 when the deadline passed
    boolean relay(Job job, ObjectNode params, Canceller canceller)
            throws IOException, InterruptedException {
        var carried = params;
        String lastError = "";
        @Nullable Answer lastAnswer = null;
        for (var upstream : backends.decode.order()) {
            if (job.call().isGone() || job.deadline().passed()) {
                break;
            }
            try {
                lastAnswer = attempt(job, upstream, carried, canceller);
                if (lastAnswer == null) {
                    return true;
                }
                lastError = upstream + " answered " + lastAnswer.status;
                carried = Json.object();
            } catch (LegException e) {
                if (canceller.fired() || job.call().isGone()) {
                    break;
                }
                lastError = String.valueOf(e.getMessage());
                upstream.failed();
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
        if (job.call().isGone()) {
            throw new IOException("the client went away");
        }
        if (canceller.fired()) {
            return false;
        }
        if (job.deadline().passed()) {
            throw HttpProblem.of(504, "timeout", "the request did not end in time: " + lastError);
        }
        if (lastAnswer != null) {
            job.call().respond(lastAnswer.status, lastAnswer.contentType, lastAnswer.body);
            return true;
        }
        throw HttpProblem.of(
                502, "decode_failed", "no decode instance could take the request: " + lastError);
    }

    /// A response with an error status of the instance's own, kept in case no other instance does
    /// better.
    @SuppressWarnings("ArrayRecordComponent") // lives within one call
    private record Answer(int status, String contentType, byte[] body) {}

    /// @return an error answer that another instance may better, or null when the client has been
    ///   answered
    private @Nullable Answer attempt(
            Job job, Upstream upstream, ObjectNode params, Canceller canceller)
            throws IOException, InterruptedException {
        try (var leg = backends.leg(upstream, job.deadline())) {
            job.call().onGone(() -> leg.cancel("the client went away"));
            canceller.accept(leg);
            var response = leg.send(job, job.withParams(params));
            var type = response.headers().firstValue("Content-Type").orElse("application/json");
            if (response.statusCode() == 200 && job.streams()) {
                relayStream(job, leg, response, type);
                return null;
            }
            var body = leg.readAll(response, settings.maxResponseBytes());
            if (response.statusCode() >= 500) {
                upstream.failures.increment();
                return new Answer(response.statusCode(), type, body);
            }
            job.call().respond(response.statusCode(), type, body);
            return null;
        }
    }

    private void relayStream(Job job, Leg leg, HttpResponse<InputStream> response, String type)
            throws IOException {
        var buffer = new byte[16 << 10];
        try (var _ = leg.watchIdle(settings.idleTimeout())) {
            int n = leg.read(response, buffer);
            if (n < 0) {
                throw new LegException(
                        response.uri() + " ended its stream before the first byte", true);
            }
            try (var out = job.call().stream(200, type)) {
                relayRest(job, leg, response, out, buffer, n);
            }
        }
    }

    private void relayRest(
            Job job,
            Leg leg,
            HttpResponse<InputStream> response,
            OutputStream out,
            byte[] buffer,
            int first)
            throws IOException {
        int n = first;
        var tail = "";
        while (n >= 0) {
            out.write(buffer, 0, n);
            out.flush();
            tail = tailOf(tail, buffer, n);
            try {
                n = leg.read(response, buffer);
            } catch (LegException e) {
                if (job.call().isGone()) {
                    throw new IOException("the client went away", e);
                }
                brokenStreams.increment();
                LOG.warn("{}: stream broke: {}", job.call().requestId(), e.getMessage());
                out.write(errorEvent(tail, String.valueOf(e.getMessage())));
                return;
            }
        }
    }

    /// The last bytes of what was relayed: an error event must begin after a whole one.
    private static String tailOf(String before, byte[] buffer, int n) {
        var text =
                before
                        + new String(
                                Arrays.copyOfRange(buffer, Math.max(0, n - 2), n),
                                StandardCharsets.ISO_8859_1);
        return text.substring(Math.max(0, text.length() - 2));
    }

    private static byte[] errorEvent(String tail, String message) {
        var problem =
                HttpProblem.of(
                        502,
                        "decode_failed",
                        "the decode instance failed in mid-stream: " + message);
        var gap = tail.equals("\n\n") ? "" : "\n\n";
        return (gap + "data: " + problem.toJson() + "\n\ndata: [DONE]\n\n")
                .getBytes(StandardCharsets.UTF_8);
    }
}
