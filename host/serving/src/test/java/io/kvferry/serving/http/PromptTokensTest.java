// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.engine.model.Tokenizer;
import io.kvferry.engine.model.Tokenizer.ChatOptions;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

@Timeout(300)
class PromptTokensTest {
    private static final String LONG = "x".repeat(PromptTokens.LONG_CHARS);

    /// Says on what kind of thread it works, and holds up prompts that begin with `x`.
    private static final class Slow implements Tokenizer {
        final CountDownLatch go = new CountDownLatch(1);

        @Override
        public int[] encode(String text) {
            if (text.startsWith("bad")) {
                throw new IllegalArgumentException("bad prompt");
            }
            // Native code: it keeps its thread, and no interrupt ends it.
            while (text.startsWith("x") && go.getCount() > 0) {
                Thread.onSpinWait();
            }
            return new int[] {Thread.currentThread().isVirtual() ? 1 : 0};
        }

        @Override
        public String decode(int[] tokens) {
            return "";
        }

        @Override
        public int[] encodeChat(List<ChatMessage> messages) {
            return encode(messages.getFirst().content());
        }

        @Override
        public StreamDecoder streamDecoder() {
            throw new UnsupportedOperationException();
        }
    }

    private final Slow slow = new Slow();

    /// As many long prompts as there are processors, and more: a virtual thread still gets its
    /// turn.
    @Test
    void longPromptsKeepNoProcessorFromOtherRequests() throws Exception {
        var tokens = new PromptTokens(slow, Duration.ofSeconds(50));
        try (var handlers = Executors.newVirtualThreadPerTaskExecutor()) {
            var all = new ArrayList<Future<int[]>>();
            for (int i = 0; i <= Runtime.getRuntime().availableProcessors(); i++) {
                all.add(handlers.submit(() -> tokens.encode(LONG, LONG.length(), true)));
            }
            assertThat(
                            handlers.submit(() -> tokens.encode("short", 5, true))
                                    .get(20, TimeUnit.SECONDS))
                    .as("on the handler's thread")
                    .containsExactly(1);
            slow.go.countDown();
            for (var one : all) {
                assertThat(one.get(20, TimeUnit.SECONDS)).containsExactly(0);
            }
        } finally {
            slow.go.countDown();
        }
    }

    @Test
    void shortPromptsThatAreLongTogetherLeaveTheHandlersThread() throws Exception {
        var tokens = new PromptTokens(slow, Duration.ofSeconds(50));
        try (var handlers = Executors.newVirtualThreadPerTaskExecutor()) {
            assertThat(
                            handlers.submit(() ->
                                            tokens.encode("short", PromptTokens.LONG_CHARS, true))
                                    .get(20, TimeUnit.SECONDS))
                    .containsExactly(0);
        }
    }

    @Test
    void aPromptThatTakesTooLongIsRefused() {
        var tokens = new PromptTokens(slow, Duration.ofMillis(50));
        var chat = List.of(new Tokenizer.ChatMessage("user", LONG));
        try {
            assertThatThrownBy(() -> tokens.encodeChat(chat, ChatOptions.DEFAULT))
                    .isInstanceOfSatisfying(
                            HttpProblem.class, e -> assertThat(e.status()).isEqualTo(503));
        } finally {
            slow.go.countDown();
        }
    }

    @Test
    void whatTheTokenizerThrowsReachesTheCaller() {
        var tokens = new PromptTokens(slow, Duration.ofSeconds(50));
        for (var prompt : List.of("bad", "bad" + LONG)) {
            assertThatThrownBy(() -> tokens.encode(prompt, prompt.length(), true))
                    .isInstanceOf(IllegalArgumentException.class)
                    .hasMessage("bad prompt")
                    .hasNoCause();
        }
    }
}
