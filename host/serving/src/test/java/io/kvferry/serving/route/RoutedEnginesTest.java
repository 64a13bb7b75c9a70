// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.serving.ServedEngine;
import io.kvferry.serving.TestSettings;
import io.kvferry.serving.cli.MakeModelCommand;
import io.kvferry.serving.http.Json;
import io.kvferry.serving.http.TestClient;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

import java.net.URI;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/// The router over two prefill and two decode engines that find blocks by content in one folder.
class RoutedEnginesTest {
    private static final int ANSWER = 6;
    private static final int PROMPTS = 4;

    @TempDir Path folder;

    private final List<ServedEngine> engines = new ArrayList<>();
    private List<List<Integer>> expected = List.of();

    @BeforeEach
    void computeTheReference() throws Exception {
        MakeModelCommand.makeDefault(folder.resolve("model"));
        var alone = new ArrayList<List<Integer>>();
        try (var engine = new ServedEngine(settings().get())) {
            for (int i = 0; i < 2 * PROMPTS; i++) {
                alone.add(engine.tokens(prompt(i), ANSWER));
            }
        }
        expected = alone;
        for (int i = 0; i < 4; i++) {
            engines.add(new ServedEngine(settings().disk(folder.resolve("disk")).get()));
        }
    }

    @AfterEach
    void stop() {
        engines.forEach(ServedEngine::close);
    }

    private TestSettings settings() {
        return TestSettings.llama(folder.resolve("model"));
    }

    private static String prompt(int i) {
        return i + " It was the best of times, it was the worst of times, it was the age of wisdom";
    }

    private URI uri(int engine) {
        return TestClient.uri(engines.get(engine).port(), "");
    }

    private RouterSettings twoByTwo() {
        return RouterSettings.of(
                HandOff.CONTENT, List.of(uri(0), uri(1)), List.of(uri(2), uri(3)), List.of());
    }

    private static void assertAnswers(PdRouter router, int from, List<List<Integer>> expected)
            throws Exception {
        for (int i = from; i < from + PROMPTS; i++) {
            assertThat(ask(router, prompt(i), i % 2 == 0))
                    .as("prompt %s", i)
                    .isEqualTo(expected.get(i));
        }
    }

    private static List<Integer> ask(PdRouter router, String prompt, boolean stream)
            throws Exception {
        var body =
                Json.object()
                        .put("prompt", prompt)
                        .put("max_tokens", ANSWER)
                        .put("temperature", 0)
                        .put("ignore_eos", true)
                        .put("return_token_ids", true)
                        .put("stream", stream);
        var response = TestClient.post(router.port(), "/v1/completions", Json.text(body));
        assertThat(response.statusCode()).as(response.body()).isEqualTo(200);
        return ids(response.body());
    }

    private static List<Integer> ids(String body) {
        var ids = new ArrayList<Integer>();
        var answers = body.startsWith("data:") ? TestClient.events(body) : List.of(body);
        for (var answer : answers) {
            if (!answer.equals("[DONE]")) {
                TestClient.json(answer)
                        .at("/choices/0/token_ids")
                        .forEach(id -> ids.add(id.asInt()));
            }
        }
        return ids;
    }

    @Test
    void takesTurnsAndGoesOnWithoutADeadPrefillAndADeadDecodeInstance() throws Exception {
        try (var router = new PdRouter(twoByTwo(), TestClient.loopback())) {
            router.start();
            assertAnswers(router, 0, expected);
            for (var engine : engines) {
                assertThat(engine.metric("kvferry_requests_finished_total", ""))
                        .as("turns taken")
                        .isEqualTo(PROMPTS / 2.0);
            }
            engines.get(0).close();
            engines.get(2).close();
            assertAnswers(router, PROMPTS, expected);
            assertThat(engines.get(1).metric("kvferry_requests_finished_total", ""))
                    .isEqualTo(PROMPTS * 1.5);
            assertThat(engines.get(3).metric("kvferry_requests_finished_total", ""))
                    .isEqualTo(PROMPTS * 1.5);
        }
    }

    /// Prompts of which many begin alike, four at a time; every third is asked twice.
    @Test
    @Tag("soak")
    @Timeout(value = 30, unit = TimeUnit.MINUTES)
    void answersAThousandPromptsAsOneEngineAlone() throws Exception {
        var random = new Random(3);
        var prompts = new ArrayList<String>();
        for (int i = 0; i < 1000; i++) {
            prompts.add(
                    i % 3 == 2
                            ? prompts.get(random.nextInt(prompts.size()))
                            : prompt(random.nextInt(20)) + text(random, random.nextInt(300)));
        }
        var alone = new ArrayList<List<Integer>>();
        try (var engine = new ServedEngine(settings().get())) {
            for (var prompt : prompts) {
                alone.add(engine.tokens(prompt, ANSWER));
            }
        }
        try (var router = new PdRouter(twoByTwo(), TestClient.loopback());
                var users = Executors.newFixedThreadPool(4)) {
            router.start();
            var answers = new ArrayList<Future<List<Integer>>>();
            for (var prompt : prompts) {
                answers.add(users.submit(() -> ask(router, prompt, prompt.length() % 2 == 0)));
            }
            for (int i = 0; i < answers.size(); i++) {
                assertThat(answers.get(i).get()).as("prompt %s", i).isEqualTo(alone.get(i));
            }
        }
        for (var engine : engines) {
            engine.awaitSaved();
            assertThat(engine.metric("kvferry_blocks", "kind=\"free\""))
                    .isEqualTo(engine.metric("kvferry_blocks", "kind=\"total\""));
            assertThat(engine.metric("kvferry_connector_defects_total", "")).isZero();
            assertThat(engine.metric("kvferry_requests_failed_total", "")).isZero();
        }
    }

    private static String text(Random random, int length) {
        return random.ints(length, ' ', 127)
                .collect(StringBuilder::new, StringBuilder::appendCodePoint, StringBuilder::append)
                .toString();
    }
}
