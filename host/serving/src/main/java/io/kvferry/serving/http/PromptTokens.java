// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.engine.model.Tokenizer;
import io.kvferry.engine.model.Tokenizer.ChatMessage;
import io.kvferry.engine.model.Tokenizer.ChatOptions;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/// Turns prompts into tokens. A long one takes seconds, in native code too; handlers run on virtual
/// threads, so it would keep a processor from all other requests of the process, `/health` among
/// them. It is done on few platform threads, which the operating system shares out.
///
/// Threading: any thread. Owns the threads `kvferry-tokenizer-N`, which end when they have nothing
/// to do. Waiting prompts are bounded by the slots of the service.
final class PromptTokens {
    /// Shorter ones take less than a handful of milliseconds.
    static final int LONG_CHARS = 32 << 10;

    private static final int THREADS =
            Math.max(1, Math.min(4, Runtime.getRuntime().availableProcessors() / 2));

    private final Tokenizer tokenizer;
    private final Duration limit;
    private final ThreadPoolExecutor threads;

    /// @param limit longest wait for the tokens of a prompt
    PromptTokens(Tokenizer tokenizer, Duration limit) {
        this.tokenizer = tokenizer;
        this.limit = limit;
        threads =
                new ThreadPoolExecutor(
                        THREADS,
                        THREADS,
                        5,
                        TimeUnit.SECONDS,
                        new LinkedBlockingQueue<>(),
                        Thread.ofPlatform().daemon().name("kvferry-tokenizer-", 0).factory());
        threads.allowCoreThreadTimeOut(true);
    }

    /// @param length of all texts of the request: many short ones take as long as a long one
    /// @throws HttpProblem 503 when that takes too long
    int[] encode(String text, long length, boolean addSpecialTokens) throws InterruptedException {
        return run(length, () -> tokenizer.encode(text, addSpecialTokens));
    }

    /// @throws HttpProblem 503 when that takes too long
    int[] encodeChat(List<ChatMessage> messages, ChatOptions options) throws InterruptedException {
        long chars = messages.stream().mapToLong(message -> message.content().length()).sum();
        for (var value : options.variables().values()) {
            chars += value.toString().length(); // documents are long
        }
        return run(chars, () -> tokenizer.encodeChat(messages, options));
    }

    /// @throws HttpProblem 503 when that takes too long
    String decode(int[] tokens) throws InterruptedException {
        return run(tokens.length, () -> tokenizer.decode(tokens));
    }

    private <T> T run(long length, Callable<T> work) throws InterruptedException {
        if (length < LONG_CHARS) {
            try {
                return work.call();
            } catch (Exception e) {
                throw unchecked(e);
            }
        }
        var task = threads.submit(work);
        try {
            return task.get(limit.toNanos(), TimeUnit.NANOSECONDS);
        } catch (TimeoutException e) {
            throw HttpProblem.of(
                    503,
                    "overloaded",
                    "the prompt was not tokenized within " + limit.toSeconds() + " s");
        } catch (ExecutionException e) {
            throw unchecked(e.getCause() == null ? e : e.getCause());
        } finally {
            task.cancel(false); // one that waits is not begun
        }
    }

    private static RuntimeException unchecked(Throwable thrown) {
        if (thrown instanceof Error error) {
            throw error;
        }
        return thrown instanceof RuntimeException e ? e : new IllegalStateException(thrown);
    }
}
