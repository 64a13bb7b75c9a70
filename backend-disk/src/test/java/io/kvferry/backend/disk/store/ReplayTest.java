// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.Durability;
import io.kvferry.toolkit.disk.FileCalls;

import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.CompletableFuture;
import java.util.regex.Pattern;

/// How many blocks of a trace's prompts a store finds that holds a tenth of them, beside an exact
/// LRU over blocks of the same size. A small made trace by default; `-Dkvferry.trace=FILE` replays
/// one in Mooncake's format (`hash_ids` per line).
class ReplayTest {
    private static final long FILE = 8192;
    private static final Pattern IDS = Pattern.compile("\"hash_ids\": \\[([0-9, ]*)]");

    @TempDir Path root;

    @ParameterizedTest
    @ValueSource(ints = {1, 3})
    void findsNearlyAsMuchAsAnExactLru(int stores) throws Exception {
        var trace = trace();
        var distinct = new HashSet<Long>();
        long all = 0;
        for (long[] request : trace) {
            for (long id : request) {
                distinct.add(id);
            }
            all += request.length;
        }
        int capacity = distinct.size() / 10;
        double exact = lru(trace, capacity) / (double) all;
        double ours = replay(trace, capacity, stores) / (double) all;
        System.out.printf(
                "replay: %d requests, %d blocks, %d distinct, capacity %d, %d stores: LRU %.4f, store %.4f, ratio %.3f%n",
                trace.size(), all, distinct.size(), capacity, stores, exact, ours, ours / exact);
        assertThat(exact).isPositive();
        assertThat(ours / exact).isGreaterThanOrEqualTo(0.95);
    }

    /// The method of Mooncake's trace replay: longest prefix, then each block most recent in order.
    private static long lru(List<long[]> trace, int capacity) {
        Map<Long, Boolean> cache = new LinkedHashMap<>(16, 0.75f, true);
        long hits = 0;
        for (long[] request : trace) {
            int prefix = 0;
            while (prefix < request.length && cache.containsKey(request[prefix])) {
                prefix++;
            }
            hits += prefix;
            for (long id : request) {
                cache.put(id, true);
                if (cache.size() > capacity) {
                    cache.remove(cache.keySet().iterator().next());
                }
            }
        }
        return hits;
    }

    private long replay(List<long[]> trace, int capacity, int count) {
        var config =
                StoreDriver.config(root)
                        .withMedium(Durability.NONE, DirectIo.OFF)
                        .withQuota(
                                capacity * FILE,
                                StoreConfig.DEFAULT_LOW_WATERMARK,
                                StoreConfig.DEFAULT_HIGH_WATERMARK)
                        .with(
                                new StoreConfig.Times(
                                        StoreDriver.PATIENCE,
                                        Duration.ZERO,
                                        Duration.ofMinutes(15),
                                        Duration.ofMillis(500),
                                        // a trace of an hour is replayed within a minute or so
                                        Duration.ofMillis(200)));
        var stores = new ArrayList<BlockStore>();
        try {
            for (int i = 0; i < count; i++) {
                // Nothing is shared but the folder, as between processes.
                stores.add(BlockStore.open(config, StoreListener.NONE, FileCalls.ofPlatform()));
            }
            var payload = StoreDriver.block(1, 16);
            Map<Long, BlockKey> keys = new HashMap<>();
            long hits = 0;
            for (int i = 0; i < trace.size(); i++) {
                var store = stores.get(i % count);
                var prompt = new ArrayList<BlockKey>();
                for (long id : trace.get(i)) {
                    int depth = prompt.size();
                    prompt.add(keys.computeIfAbsent(id, _ -> BlockKey.of("block " + id, depth)));
                }
                int found = new StoreDriver(store).locate(prompt);
                hits += found;
                var saves = new ArrayList<CompletableFuture<BlockResult>>();
                for (var key : prompt.subList(found, prompt.size())) {
                    var done = new CompletableFuture<BlockResult>();
                    saves.add(done);
                    while (!store.save(
                            key,
                            payload,
                            Deadline.in(StoreDriver.PATIENCE),
                            (_, result) -> done.complete(result),
                            0)) {
                        Thread.onSpinWait(); // the queue is full
                    }
                }
                saves.forEach(save ->
                        assertThat(save.orTimeout(60, java.util.concurrent.TimeUnit.SECONDS).join())
                                .isInstanceOf(BlockResult.Done.class));
                store.touch(prompt);
            }
            return hits;
        } finally {
            stores.forEach(BlockStore::close);
        }
    }

    private static List<long[]> trace() throws IOException {
        var path = System.getProperty("kvferry.trace");
        if (path != null) {
            var trace = new ArrayList<long[]>();
            for (var line : Files.readAllLines(Path.of(path))) {
                var ids = IDS.matcher(line);
                if (ids.find()) {
                    trace.add(
                            Pattern.compile(", ")
                                    .splitAsStream(ids.group(1))
                                    .mapToLong(Long::parseLong)
                                    .toArray());
                }
            }
            return trace;
        }
        // Conversations that come back with a longer prompt, behind a system prompt of two blocks.
        var random = new SplittableRandom(7);
        List<long[]> open = new ArrayList<>();
        var trace = new ArrayList<long[]>();
        long next = 10;
        for (int i = 0; i < 900; i++) {
            long[] request;
            if (!open.isEmpty() && random.nextInt(3) > 0) {
                int recent =
                        open.size()
                                - 1
                                - Math.min(
                                        open.size() - 1,
                                        random.nextInt(1, 13) * random.nextInt(1, 13) / 6);
                long[] before = open.get(recent);
                request = java.util.Arrays.copyOf(before, before.length + random.nextInt(1, 4));
                for (int b = before.length; b < request.length; b++) {
                    request[b] = next++;
                }
                open.remove(recent);
            } else {
                request = new long[2 + random.nextInt(2, 10)];
                request[1] = 1;
                for (int b = 2; b < request.length; b++) {
                    request[b] = next++;
                }
            }
            open.add(request);
            trace.add(request);
        }
        return trace;
    }
}
