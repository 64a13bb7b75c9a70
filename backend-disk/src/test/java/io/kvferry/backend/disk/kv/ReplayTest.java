// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.SplittableRandom;
import java.util.stream.Collectors;

/// Conversations that come back with longer prompts, in a folder with room for a tenth of their
/// blocks: what engines find again, beside an exact LRU over blocks. The short form of
/// `benchmarks/run replay`.
class ReplayTest {
    private static final int REQUESTS = 300;
    private static final double LEAST = 0.95;

    @TempDir Path root;

    @ParameterizedTest
    @ValueSource(ints = {1, 3})
    @Timeout(900)
    void findsAsMuchAsAnExactLru(int processes) throws Exception {
        var trace = trace();
        var ids = new HashSet<Integer>();
        trace.forEach(request -> Arrays.stream(request).forEach(ids::add));
        int capacity = ids.size() / 10;
        long exact = exactLru(trace, capacity);
        assertThat(exact).as("a trace that tells").isGreaterThan(REQUESTS);
        assertThat(replay(trace, capacity, processes))
                .isGreaterThanOrEqualTo((long) Math.floor(LEAST * exact));
    }

    /// The ids of the blocks of each request; equal ids at the front mean an equal prefix.
    private static List<int[]> trace() {
        var random = new SplittableRandom(7);
        List<int[]> open = new ArrayList<>();
        var requests = new ArrayList<int[]>();
        int next = 10;
        for (int i = 0; i < REQUESTS; i++) {
            int[] request;
            int known;
            if (open.size() > 5 && random.nextInt(3) > 0) {
                int age = 5 + random.nextInt(1, 9) * random.nextInt(1, 9) / 6;
                int[] before = open.remove(Math.max(0, open.size() - 1 - age));
                known = before.length;
                request = Arrays.copyOf(before, known + random.nextInt(1, 4));
            } else {
                request = new int[2 + random.nextInt(2, 8)];
                known = 2;
                request[1] = 1;
            }
            for (int b = known; b < request.length; b++) {
                request[b] = next++;
            }
            open.add(request);
            requests.add(request);
        }
        return requests;
    }

    /// Of each request the longest prefix that is there counts; then each of its blocks in order
    /// becomes the most recent, and what is too much leaves at once.
    private static long exactLru(List<int[]> trace, int capacity) {
        Map<Integer, Boolean> cache = new LinkedHashMap<>(16, 0.75f, true);
        long hits = 0;
        for (int[] request : trace) {
            int prefix = 0;
            while (prefix < request.length && cache.containsKey(request[prefix])) {
                prefix++;
            }
            hits += prefix;
            for (int id : request) {
                cache.put(id, true);
                if (cache.size() > capacity) {
                    cache.remove(cache.keySet().iterator().next());
                }
            }
        }
        return hits;
    }

    /// Blocks that engines found, each in a JVM of its own, which take the requests in turns.
    private long replay(List<int[]> trace, int capacity, int processes) throws IOException {
        var children = new ArrayList<Process>();
        try {
            for (int i = 0; i < processes; i++) {
                children.add(ReplayChild.start(root, capacity));
            }
            long found = 0;
            for (int i = 0; i < trace.size(); i++) {
                var child = children.get(i % processes);
                var line =
                        Arrays.stream(trace.get(i))
                                .mapToObj(String::valueOf)
                                .collect(Collectors.joining(" ", "", "\n"));
                child.getOutputStream().write(line.getBytes(StandardCharsets.UTF_8));
                child.getOutputStream().flush();
                found += Long.parseLong(Objects.requireNonNull(child.inputReader().readLine()));
            }
            return found;
        } finally {
            children.forEach(Process::destroyForcibly);
        }
    }
}
