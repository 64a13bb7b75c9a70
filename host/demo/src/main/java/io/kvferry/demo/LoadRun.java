// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.Consumer;

/// Sends conversations to a server: some users at a time, each with one conversation from its first
/// turn to its last.
final class LoadRun {
    private static final Duration REQUEST_LIMIT = Duration.ofSeconds(60);

    private LoadRun() {}

    /// Runs all turns; every one gets a sample, in the order of `turns`.
    ///
    /// @param onSample called after each request, from the users' threads
    static List<Sample> run(URI server, List<Turn> turns, int users, Consumer<Sample> onSample)
            throws InterruptedException {
        var samples = new ArrayList<Sample>();
        try (var client = new StreamingClient(server, REQUEST_LIMIT);
                var threads =
                        Executors.newFixedThreadPool(
                                users, Thread.ofPlatform().name("kvferry-user-", 0).factory())) {
            var futures = new ArrayList<Future<List<Sample>>>();
            turns.stream()
                    .map(Turn::conversation)
                    .distinct()
                    .forEach(conversation ->
                            futures.add(
                                    threads.submit(() ->
                                            converse(client, turns, conversation, onSample))));
            for (var future : futures) {
                samples.addAll(get(future));
            }
        }
        return samples;
    }

    private static List<Sample> converse(
            StreamingClient client, List<Turn> turns, int conversation, Consumer<Sample> onSample)
            throws InterruptedException {
        var own = new ArrayList<Sample>();
        for (var turn : turns) {
            if (turn.conversation() == conversation) {
                var sample = client.send(turn);
                own.add(sample);
                onSample.accept(sample);
            }
        }
        return own;
    }

    /// The value of a task, or what it threw.
    static <T> T get(Future<T> future) throws InterruptedException {
        try {
            return future.get();
        } catch (ExecutionException e) {
            throw failure(Objects.requireNonNullElse(e.getCause(), e));
        }
    }

    static KvFerryException failure(Throwable cause) {
        return cause instanceof KvFerryException known
                ? known
                : new KvFerryException(ErrorCode.INTERNAL, "the demo failed: " + cause, cause);
    }
}
