// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.model.Tokenizer.ChatMessage;
import io.kvferry.serving.AssembledEngine;
import io.kvferry.serving.EngineSettings;
import io.kvferry.serving.cli.Progress;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/// The same conversations in one engine, without any connector: what every other run must
/// reproduce.
final class ReferenceRun {
    private static final Duration LIMIT = Duration.ofMinutes(2);
    private static final String SYSTEM =
            "You read old books aloud. Go on with the story in its own voice.";

    private ReferenceRun() {}

    /// Runs all conversations, one request after the other.
    ///
    /// @param answerTokens tokens generated per turn
    static List<Turn> of(
            EngineSettings settings,
            List<List<String>> conversations,
            int answerTokens,
            Progress progress) {
        var turns = new ArrayList<Turn>();
        int total = conversations.stream().mapToInt(List::size).sum();
        try (var assembled = AssembledEngine.start(settings)) {
            for (int c = 0; c < conversations.size(); c++) {
                var messages = new ArrayList<ChatMessage>();
                messages.add(new ChatMessage("system", SYSTEM));
                for (int t = 0; t < conversations.get(c).size(); t++) {
                    messages.add(new ChatMessage("user", conversations.get(c).get(t)));
                    int[] answer = answer(assembled, messages, answerTokens);
                    turns.add(new Turn(c, t, messages, answer));
                    progress.advance(turns.size(), total);
                    messages.add(
                            new ChatMessage(
                                    "assistant",
                                    printable(assembled.engine().tokenizer().decode(answer))));
                }
            }
        }
        return turns;
    }

    private static int[] answer(
            AssembledEngine assembled, List<ChatMessage> messages, int answerTokens) {
        var engine = assembled.engine();
        var prompt = engine.tokenizer().encodeChat(List.copyOf(messages));
        var sampling = SamplingParams.greedy(answerTokens).withIgnoreEos(true);
        var outcome =
                engine.submit(GenerationRequest.of(prompt, sampling)).await(Deadline.in(LIMIT));
        return switch (outcome.orElseThrow(
                () ->
                        new KvFerryException(
                                ErrorCode.TIMEOUT,
                                "the run without disaggregation did not answer within " + LIMIT))) {
            case Outcome.Finished finished -> finished.tokens();
            case Outcome.Failed failed -> throw failed.failure().toException();
        };
    }

    /// A random model says anything; only printable ASCII goes back into a prompt, which every
    /// tokenizer reads alike.
    private static String printable(String text) {
        return text.replaceAll("[^\\x20-\\x7e]", "?");
    }
}
