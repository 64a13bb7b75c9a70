// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.engine.Outcome;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.RequestHandle.StreamEvent;
import io.kvferry.engine.Usage;
import io.kvferry.engine.model.TokenLogprobs;
import io.kvferry.engine.model.Tokenizer;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.FinishReason;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import tools.jackson.databind.JsonNode;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.function.ObjIntConsumer;

/// One completion request while the engine works on it: follows its generations and writes the
/// answer, whole or as a stream.
///
/// A stream sends its status line with the first event, so that a request that fails before has a
/// proper status; where that takes long, comments keep proxies and clients from closing the
/// connection.
///
/// Threading: the handler's thread.
final class CompletionRun {
    private static final Logger LOG = LoggerFactory.getLogger(CompletionRun.class);
    private static final byte[] COMMENT = ":\n\n".getBytes(StandardCharsets.UTF_8);
    private static final byte[] DONE = "data: [DONE]\n\n".getBytes(StandardCharsets.UTF_8);

    private final HttpCall call;
    private final CompletionRequest request;
    private final List<RequestHandle> handles;
    private final CompletionJson json;
    private final Deadline deadline;
    private final Duration heartbeat;
    private final ObjIntConsumer<Usage> onUsage;
    private final List<ChoiceText> choices = new ArrayList<>();
    private int open;

    /// @param handles one for each choice
    /// @param heartbeat longest time without a byte in a stream
    /// @param onUsage called with the usage and the index of each choice that ends without a
    ///   failure
    CompletionRun(
            HttpCall call,
            CompletionRequest request,
            List<RequestHandle> handles,
            Tokenizer tokenizer,
            CompletionJson json,
            Deadline deadline,
            Duration heartbeat,
            ObjIntConsumer<Usage> onUsage) {
        this.call = call;
        this.request = request;
        this.handles = handles;
        this.json = json;
        this.deadline = deadline;
        this.heartbeat = heartbeat;
        this.onUsage = onUsage;
        this.open = handles.size();
        for (int i = 0; i < handles.size(); i++) {
            var generation = request.generations().get(i);
            var echo = request.echo() ? tokenizer.decode(generation.prompt()) : "";
            var text =
                    new StopText(
                            tokenizer.streamDecoder(),
                            generation.sampling().stop(),
                            request.includeStop(),
                            generation.sampling().options().minTokens());
            choices.add(new ChoiceText(i, text, echo));
        }
    }

    /// Writes the answer.
    void run() throws IOException, InterruptedException {
        try (var events = new GenerationEvents(handles)) {
            if (request.stream()) {
                stream(events);
            } else {
                while (open > 0) {
                    take(events.next(deadline).orElseThrow(this::timeout));
                }
                call.respondJson(200, json.whole(choices));
            }
        } finally {
            if (open > 0) {
                handles.forEach(RequestHandle::abort);
            }
        }
    }

    private HttpProblem timeout() {
        return HttpProblem.of(504, "timeout", "the request did not end in time and was aborted");
    }

    private void take(GenerationEvents.Indexed next) throws IOException {
        var choice = choices.get(next.choice());
        switch (next.event()) {
            case StreamEvent.Token(int _, int token, Optional<TokenLogprobs> logprobs) -> {
                score(choice);
                if (!request.promptOnly()) {
                    logprobs.ifPresent(choice.logprobs::add);
                    choice.append(token);
                }
            }
            case StreamEvent.Ended(Outcome outcome) -> {
                var done = finished(outcome, next.choice());
                score(choice);
                choice.end(done);
                open--;
            }
        }
    }

    /// With the first event of a choice, the log-probabilities of its prompt are there.
    ///
    /// @return whether this was the first and they are wanted
    private boolean score(ChoiceText choice) {
        if (!request.scoresPrompt() || !choice.logprobs.isEmpty()) {
            return false;
        }
        var prompt = request.generations().get(choice.index).prompt();
        choice.score(prompt, handles.get(choice.index).promptLogprobs());
        return true;
    }

    /// The regular end of a generation, or the problem that stands for any other.
    private Outcome.Finished finished(Outcome outcome, int choice) throws IOException {
        return switch (outcome) {
            case Outcome.Failed(Failure failure, Usage _) -> {
                LOG.warn("{} failed: {}", handles.get(choice).id(), failure);
                throw HttpProblem.of(failure);
            }
            case Outcome.Finished done when done.reason() == FinishReason.ABORT -> {
                if (call.isCancelled()) {
                    throw call.whyCancelled();
                }
                throw HttpProblem.of(503, "aborted", "the engine aborted the request");
            }
            case Outcome.Finished done -> {
                onUsage.accept(done.usage(), choice);
                yield done;
            }
        };
    }

    private void stream(GenerationEvents events) throws IOException, InterruptedException {
        var first = events.next(Deadline.in(heartbeat).earlier(deadline));
        if (first.isPresent()
                && first.get().event() instanceof StreamEvent.Ended(Outcome outcome)
                && !answers(outcome)) {
            finished(outcome, first.get().choice());
        }
        if (first.isEmpty() && deadline.passed()) {
            throw timeout();
        }
        try (var out = call.stream(200, "text/event-stream; charset=utf-8")) {
            try {
                begin(out);
                relay(events, out, first);
            } catch (HttpProblem problem) {
                out.write(("data: " + problem.toJson() + "\n\n").getBytes(StandardCharsets.UTF_8));
            }
            out.write(DONE);
            out.flush();
        }
    }

    private static boolean answers(Outcome outcome) {
        return outcome instanceof Outcome.Finished done && done.reason() != FinishReason.ABORT;
    }

    private void begin(OutputStream out) throws IOException {
        for (var choice : choices) {
            if (request.chat()) {
                send(out, json.roleChunk(choice));
            } else if (request.echo() && !request.scoresPrompt()) {
                send(out, json.chunk(choice, choice.text(), new int[0], List.of(), null));
            }
        }
    }

    private void relay(
            GenerationEvents events, OutputStream out, Optional<GenerationEvents.Indexed> first)
            throws IOException, InterruptedException {
        var next = first;
        while (true) {
            if (next.isPresent()) {
                relay(out, next.get());
            } else if (deadline.passed()) {
                throw timeout();
            } else {
                out.write(COMMENT); // fails when the client has disconnected
                out.flush();
            }
            if (open == 0) {
                break;
            }
            next = events.next(Deadline.in(heartbeat).earlier(deadline));
        }
        if (request.includeUsage()) {
            send(out, json.usageChunk(choices));
        }
    }

    private void relay(OutputStream out, GenerationEvents.Indexed next) throws IOException {
        var choice = choices.get(next.choice());
        switch (next.event()) {
            case StreamEvent.Token(int _, int token, Optional<TokenLogprobs> logprobs) -> {
                echoScored(out, choice);
                if (request.promptOnly()) {
                    return;
                }
                var text = choice.append(token);
                var values = logprobs.map(List::of).orElse(List.of());
                var chunk = json.chunk(choice, text, new int[] {token}, values, null);
                if (request.continuousUsage()) {
                    json.putUsageSoFar(chunk, choices);
                }
                send(out, chunk);
            }
            case StreamEvent.Ended(Outcome outcome) -> {
                var done = finished(outcome, next.choice());
                echoScored(out, choice);
                var rest = choice.end(done);
                open--;
                var last = json.chunk(choice, rest, new int[0], List.of(), json.reason(done));
                if (choices.size() == 1) {
                    json.putParams(last, choices);
                }
                if (request.continuousUsage()) {
                    json.putUsageSoFar(last, choices);
                }
                send(out, last);
            }
        }
    }

    /// The prompt before the first token, with its log-probabilities.
    private void echoScored(OutputStream out, ChoiceText choice) throws IOException {
        if (score(choice)) {
            send(out, json.echoChunk(choice));
        }
    }

    private static void send(OutputStream out, JsonNode json) throws IOException {
        out.write(("data: " + Json.text(json) + "\n\n").getBytes(StandardCharsets.UTF_8));
        out.flush();
    }
}
