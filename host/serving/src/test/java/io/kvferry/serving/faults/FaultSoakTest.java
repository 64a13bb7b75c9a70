// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.faults;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.serving.ServedEngine;
import io.kvferry.serving.TestSettings;
import io.kvferry.serving.http.TestClient;
import io.kvferry.serving.metrics.MetricsPage;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/// Faults at random against a fleet of real processes under load: no client ever gets a wrong token
/// or waits beyond its deadline, requests succeed soon after a process is ready again, and at rest
/// all blocks are free and no process has more descriptors or threads than before.
class FaultSoakTest {
    private static final int CLIENTS = 3;
    private static final int PROMPTS = 48;
    private static final int TOKENS = 8;

    /// Successes that come later after a fault are printed.
    private static final int SLOW_MILLIS = 2_000;

    /// The JVM's own threads and the connections that rest.
    private static final int SLACK = 40;

    @TempDir Path folder;

    private final Random random = new Random(Long.getLong("kvferry.soak.seed", 12));
    private final Map<Fault, Integer> suffered = new EnumMap<>(Fault.class);

    /// Process id to descriptors and threads at the first rest.
    private final Map<Long, int[]> atRest = new HashMap<>();

    /// From the readiness of each new process to the next success.
    private final List<Long> returnMillis = new ArrayList<>();

    @Test
    @Timeout(value = 5, unit = TimeUnit.MINUTES)
    void survivesAFewFaults() throws Exception {
        var few =
                List.of(
                        Fault.KILL_DECODE,
                        Fault.CORRUPT_FILES,
                        Fault.RESET_CONNECTIONS,
                        Fault.GARBAGE_CONNECTIONS);
        // The machine decides how soon a new JVM answers; the long form is for a quiet one.
        suffer(List.of(few), Duration.ofSeconds(20));
    }

    @Test
    @Tag("soak")
    @Timeout(value = 60, unit = TimeUnit.MINUTES)
    void survivesTwoHundredFaults() throws Exception {
        int count = Integer.getInteger("kvferry.soak.faults", 200);
        var deck = new ArrayList<Fault>();
        while (deck.size() < count) {
            var all = Arrays.asList(Fault.values());
            Collections.shuffle(all, random);
            deck.addAll(all);
        }
        var rounds = new ArrayList<List<Fault>>();
        for (int from = 0; from < count; from += 10) {
            rounds.add(deck.subList(from, Math.min(from + 10, count)));
        }
        suffer(rounds, Duration.ofMillis(Integer.getInteger("kvferry.soak.return_millis", 2_000)));
    }

    /// @param returnLimit from the readiness of a new process to the next success
    private void suffer(List<List<Fault>> rounds, Duration returnLimit) throws Exception {
        var expected = answersOfOneEngineWithoutConnectors();
        try (var fleet = new Fleet(folder, random)) {
            fleet.start();
            var load =
                    new Load(
                            fleet.router.port, expected, Duration.ofSeconds(Fleet.REQUEST_SECONDS));
            round(fleet, load, List.of(), returnLimit);
            for (var round : rounds) {
                round(fleet, load, round, returnLimit);
                assertThat(load.violations).isEmpty();
                System.out.println("after " + round + ": " + load.endsByKind());
            }
            for (var process : fleet.processes()) {
                assertThat(process.log())
                        .as("log of %s", process.name)
                        .doesNotContain("wrong KV", "a defect in kvferry", "OutOfMemoryError");
            }
            assertThat(load.endsByKind().getOrDefault("200", 0L)).isGreaterThan(20);
            System.out.println(
                    "faults: "
                            + suffered
                            + "; requests: "
                            + load.endsByKind()
                            + "; longest request: "
                            + load.longestMillis
                            + " ms; success after the start of a process: "
                            + returns());
        }
    }

    private String returns() {
        if (returnMillis.isEmpty()) {
            return "no process was started again";
        }
        var sorted = returnMillis.stream().sorted().toList();
        return "median "
                + sorted.get(sorted.size() / 2)
                + " ms, longest "
                + sorted.getLast()
                + " ms of "
                + sorted.size();
    }

    private Map<String, List<Integer>> answersOfOneEngineWithoutConnectors() throws Exception {
        var answers = new LinkedHashMap<String, List<Integer>>();
        try (var alone = new ServedEngine(TestSettings.synthetic().get())) {
            var beginnings = new ArrayList<String>();
            for (int i = 0; i < PROMPTS / 6; i++) {
                beginnings.add(text(150 + random.nextInt(300)));
            }
            while (answers.size() < PROMPTS) {
                var prompt =
                        beginnings.get(random.nextInt(beginnings.size()))
                                + text(random.nextInt(100));
                answers.put(prompt, alone.tokens(prompt, TOKENS));
            }
        }
        return answers;
    }

    private String text(int length) {
        return random.ints(length, 'a', 'z' + 1)
                .collect(StringBuilder::new, StringBuilder::appendCodePoint, StringBuilder::append)
                .toString();
    }

    /// Faults under load, then a rest.
    private void round(Fleet fleet, Load load, List<Fault> faults, Duration returnLimit)
            throws Exception {
        var over = new AtomicBoolean();
        var clients = new ArrayList<Thread>();
        for (int i = 0; i < CLIENTS; i++) {
            var draws = new Random(random.nextLong());
            clients.add(Thread.ofVirtual().start(() -> load.run(over, draws)));
        }
        try {
            succeed(load, Duration.ofSeconds(60), "before the faults");
            for (var fault : faults) {
                if (!fleet.can(fault)) {
                    System.out.println(fault + " left out: mounting a small tmpfs was refused");
                    continue;
                }
                suffered.merge(fault, 1, Integer::sum);
                var started = fleet.suffer(fault);
                // After the end of any other fault, what it left behind may take its own deadline.
                var limit =
                        started.isPresent()
                                ? returnLimit
                                : Duration.ofSeconds(Fleet.REQUEST_SECONDS + 20);
                long millis = succeed(load, limit, "after " + fault);
                if (millis > SLOW_MILLIS) {
                    System.out.println(
                            millis + " ms until a success after " + fault + ": " + load.messages);
                }
                if (started.isPresent()) {
                    returnMillis.add(millis);
                }
            }
        } finally {
            over.set(true);
            for (var client : clients) {
                client.join();
            }
        }
        rest(fleet, faults);
    }

    /// Asks until an answer is right.
    ///
    /// @return after how long
    private long succeed(Load load, Duration limit, String when) {
        long start = System.nanoTime();
        var draws = new Random(random.nextLong());
        while (!load.once(draws)) {
            long millis = (System.nanoTime() - start) / 1_000_000;
            assertThat(millis)
                    .as(
                            "milliseconds without a success %s; %s; %s",
                            when, load.endsByKind(), load.messages)
                    .isLessThan(limit.toMillis());
        }
        return (System.nanoTime() - start) / 1_000_000;
    }

    private void rest(Fleet fleet, List<Fault> faults) throws Exception {
        awaitRest(fleet.prefill);
        awaitRest(fleet.decode);
        for (var process : fleet.processes()) {
            int[] now = {process.descriptors(), process.threads()};
            var first = atRest.putIfAbsent(process.pid(), now);
            if (first != null) {
                assertThat(now[0])
                        .as("descriptors of %s after %s", process.name, faults)
                        .isLessThanOrEqualTo(first[0] + SLACK);
                assertThat(now[1])
                        .as("threads of %s after %s", process.name, faults)
                        .isLessThanOrEqualTo(first[1] + SLACK);
            }
        }
    }

    private static void awaitRest(ServerProcess engine) throws Exception {
        var limit = Deadline.in(Duration.ofSeconds(40));
        var page = "";
        while (!limit.passed()) {
            page = TestClient.get(engine.port, "/metrics").body();
            if (isAtRest(page)) {
                return;
            }
            Thread.sleep(50); // the figures are all there is; the deadline decides
        }
        throw new AssertionError(engine.name + " is not at rest: " + page);
    }

    private static boolean isAtRest(String page) {
        return sample(page, "kvferry_blocks", "kind=\"free\"")
                        == sample(page, "kvferry_blocks", "kind=\"total\"")
                && sample(page, "kvferry_requests", "state=\"held\"") <= 0
                && sample(page, "vllm:num_requests_running", "") == 0
                && sample(page, "vllm:num_requests_waiting", "") == 0
                && sample(page, "kvferry_connector_defects_total", "") <= 0;
    }

    private static double sample(String page, String metric, String label) {
        return MetricsPage.find(page, metric, label).orElse(-1.0);
    }
}
