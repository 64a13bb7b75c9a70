// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.replay;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.regex.Pattern;

/// Requests in the order of their arrival, each as the ids of its blocks: equal ids at the front
/// mean an equal prefix.
public record Trace(List<int[]> requests) {
    private static final Pattern IDS = Pattern.compile("\"hash_ids\":\\s*\\[([0-9, ]*)]");
    private static final int SOONEST = 5;
    private static final Pattern COMMA = Pattern.compile(",\\s*");

    /// Reads Mooncake's format: one JSON object per line with `hash_ids`, sorted by time.
    public static Trace read(Path file) throws IOException {
        var requests = new ArrayList<int[]>();
        try (var lines = Files.lines(file)) {
            lines.map(IDS::matcher)
                    .filter(ids -> ids.find() && !ids.group(1).isBlank())
                    .forEach(ids ->
                            requests.add(
                                    COMMA.splitAsStream(ids.group(1).strip())
                                            .mapToInt(Integer::parseInt)
                                            .toArray()));
        }
        return new Trace(requests);
    }

    /// Conversations that come back with a longer prompt, behind a system prompt of two blocks, and
    /// not before a few others were served.
    public static Trace made(int count) {
        var random = new SplittableRandom(7);
        List<int[]> open = new ArrayList<>();
        var requests = new ArrayList<int[]>();
        int next = 10;
        for (int i = 0; i < count; i++) {
            int[] request;
            int known;
            if (open.size() > SOONEST && random.nextInt(3) > 0) {
                int age = SOONEST + random.nextInt(1, 13) * random.nextInt(1, 13) / 6;
                age = Math.min(open.size() - 1, age);
                int[] before = open.remove(open.size() - 1 - age);
                known = before.length;
                request = Arrays.copyOf(before, known + random.nextInt(1, 4));
            } else {
                request = new int[2 + random.nextInt(2, 10)];
                known = 2;
                request[1] = 1;
            }
            for (int b = known; b < request.length; b++) {
                request[b] = next++;
            }
            open.add(request);
            requests.add(request);
        }
        return new Trace(requests);
    }

    public Trace first(int count) {
        return new Trace(requests.subList(0, Math.min(count, requests.size())));
    }

    /// Blocks of all requests together.
    public long references() {
        return requests.stream().mapToLong(ids -> ids.length).sum();
    }

    public int distinct() {
        var ids = new HashSet<Integer>();
        requests.forEach(request -> Arrays.stream(request).forEach(ids::add));
        return ids.size();
    }

    public int longest() {
        return requests.stream().mapToInt(ids -> ids.length).max().orElse(0);
    }

    /// Hits of an exact LRU of this capacity, in blocks. For each request, counts the longest
    /// cached prefix; then touches its blocks in order, evicting immediately when over capacity.
    public long exactLru(int capacity) {
        Map<Integer, Boolean> cache = new LinkedHashMap<>(16, 0.75f, true);
        long hits = 0;
        for (int[] request : requests) {
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
}
