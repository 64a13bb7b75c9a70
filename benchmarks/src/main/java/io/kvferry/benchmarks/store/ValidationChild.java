// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.store;

import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.observe.EventSink;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/// An engine without a prefix cache of its own that holds conversations: each turn sends all that
/// was said, so it finds the turns before in the store. The model verifies every byte that it
/// loads.
///
/// It prints one line, `@ complete=.. ttft_ms=..`, at its end.
final class ValidationChild {
    private static final int BLOCK_TOKENS = 16;
    private static final Duration LIMIT = Duration.ofMinutes(20);

    private ValidationChild() {}

    /// @param said tokens of a turn that its user adds
    /// @param answered tokens of an answer
    private record Shape(
            int conversations, int turns, int concurrent, int prompt, int said, int answered) {
        int longest() {
            return prompt + turns * (said + answered);
        }
    }

    /// What a turn took.
    private record Turn(boolean first, long ttftNanos, long nanos, int prompt, int loaded) {}

    /// @param args config JSON of the connector, conversations, turns, concurrent, tokens of the
    ///   first prompt, layers, time of a computed token
    public static void main(String[] args) throws InterruptedException, ExecutionException {
        var shape =
                new Shape(
                        Integer.parseInt(args[1]),
                        Integer.parseInt(args[2]),
                        Integer.parseInt(args[3]),
                        Integer.parseInt(args[4]),
                        Math.max(BLOCK_TOKENS, Integer.parseInt(args[4]) / 32),
                        64);
        Map<String, Object> model =
                Map.of(
                        "layers",
                        Long.parseLong(args[5]),
                        "kv_heads",
                        2L,
                        "head_dim",
                        32L,
                        "dtype",
                        "float16",
                        "token_time",
                        args[6]);
        int blocks = Math.ceilDiv(shape.longest(), BLOCK_TOKENS) + 1;
        try (var kvferry = Kvferry.open(PluginCatalog.ofClassPath(), EventSink.NONE)) {
            var connector = kvferry.kv(args[0]);
            var config =
                    EngineConfig.of(new SyntheticProvider(), Path.of("."), model)
                            .kvConnector(connector.provider(), connector.config())
                            .host(kvferry.services())
                            .blockTokens(BLOCK_TOKENS)
                            .blockCount(blocks * shape.concurrent())
                            .maxRunning(shape.concurrent())
                            .stepTokens(4096)
                            .prefixCache(false);
            try (var engine = Engine.open(config).start();
                    var users = Executors.newFixedThreadPool(shape.concurrent())) {
                hold(engine, users, shape);
            }
        }
    }

    /// A turn of each conversation, then the next of each: between two turns of one all others have
    /// theirs, so that what it finds has long left the memory of a small store.
    private static void hold(Engine engine, ExecutorService users, Shape shape)
            throws InterruptedException, ExecutionException {
        long begin = System.nanoTime();
        var conversations = new ArrayList<Conversation>();
        for (int i = 0; i < shape.conversations(); i++) {
            conversations.add(new Conversation(engine, shape, i));
        }
        for (int turn = 0; turn < shape.turns(); turn++) {
            for (var ended : users.invokeAll(conversations)) {
                ended.get();
            }
        }
        var turns = conversations.stream().flatMap(one -> one.turns.stream()).toList();
        long complete =
                conversations.stream().filter(one -> one.turns.size() == shape.turns()).count();
        double seconds = (System.nanoTime() - begin) / 1e9;
        var later = turns.stream().filter(turn -> !turn.first()).toList();
        long prompted = later.stream().mapToLong(Turn::prompt).sum();
        long loaded = later.stream().mapToLong(Turn::loaded).sum();
        System.out.printf(
                Locale.ROOT,
                "@ complete=%d/%d seconds=%.1f ttft_ms=%.1f later_ttft_ms=%.1f later_ttft_p99_ms=%.1f"
                        + " e2e_ms=%.1f later_loaded=%.3f%n",
                complete,
                shape.conversations(),
                seconds,
                millis(turns.stream().mapToLong(Turn::ttftNanos).average().orElse(0)),
                millis(later.stream().mapToLong(Turn::ttftNanos).average().orElse(0)),
                millis(percentile99(later)),
                millis(turns.stream().mapToLong(Turn::nanos).average().orElse(0)),
                (double) loaded / Math.max(1, prompted));
        System.out.flush();
    }

    private static double millis(double nanos) {
        return nanos / 1e6;
    }

    private static double percentile99(List<Turn> turns) {
        long[] sorted = turns.stream().mapToLong(Turn::ttftNanos).sorted().toArray();
        return sorted.length == 0
                ? 0
                : sorted[Math.min(sorted.length - 1, sorted.length * 99 / 100)];
    }

    /// What was said so far. A call has one turn more, unless one has gone wrong.
    private static final class Conversation implements Callable<Boolean> {
        private final Engine engine;
        private final Shape shape;
        private final int seed;
        private final SplittableRandom random;
        private final List<Turn> turns = new ArrayList<>();
        private int[] history;
        private boolean broken;

        Conversation(Engine engine, Shape shape, int seed) {
            this.engine = engine;
            this.shape = shape;
            this.seed = seed;
            this.random = new SplittableRandom(seed);
            this.history = tokens(random, shape.prompt());
        }

        @Override
        public Boolean call() {
            if (broken) {
                return false;
            }
            broken = true;
            long begin = System.nanoTime();
            var handle =
                    engine.submit(
                            GenerationRequest.of(history, SamplingParams.greedy(shape.answered()))
                                    .withFailurePolicy(LoadFailurePolicy.RECOMPUTE));
            var limit = Deadline.in(LIMIT);
            var first = handle.next(limit);
            long ttft = System.nanoTime() - begin;
            if (first.isEmpty() || !(first.get() instanceof RequestHandle.StreamEvent.Token)) {
                return wrong(first);
            }
            var outcome = handle.await(limit);
            if (outcome.isEmpty()
                    || !(outcome.get() instanceof Outcome.Finished finished)
                    || finished.reason() != FinishReason.LENGTH) {
                return wrong(outcome);
            }
            int loaded =
                    finished.usage().external().stream().mapToInt(LookupResult.Share::tokens).sum();
            long nanos = System.nanoTime() - begin;
            turns.add(new Turn(turns.isEmpty(), ttft, nanos, history.length, loaded));
            history = join(history, finished.tokens(), tokens(random, shape.said()));
            broken = false;
            return true;
        }

        private boolean wrong(Object what) {
            System.err.println("turn " + turns.size() + " of " + seed + ": " + what);
            return false;
        }
    }

    private static int[] tokens(SplittableRandom random, int count) {
        return random.ints(count, 300, 30_000).toArray();
    }

    private static int[] join(int[]... parts) {
        return Arrays.stream(parts).flatMapToInt(Arrays::stream).toArray();
    }
}
