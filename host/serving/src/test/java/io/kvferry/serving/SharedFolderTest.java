// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.serving.cli.MakeModelCommand;

import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/// Engines that differ in anything that changes the bytes or the tenant share one disk folder, and
/// none ever sees a block of another.
@Timeout(300) // two dozen engines start
class SharedFolderTest {
    private static final int ANSWER = 8;
    private static final List<String> PROMPTS =
            List.of(
                    "Call me Ishmael. Some years ago, never mind how long precisely, having little or no money",
                    "It was the best of times, it was the worst of times, it was the age of wisdom");

    @TempDir static Path models;

    @TempDir Path disk;

    @BeforeAll
    static void makeModels() {
        MakeModelCommand.make(models.resolve("one"), 1);
        MakeModelCommand.make(models.resolve("two"), 2);
    }

    /// Each differs from the first of its runner in one thing.
    private static Map<String, TestSettings> engines() {
        var one = models.resolve("one");
        var all = new LinkedHashMap<String, TestSettings>();
        all.put("llama", TestSettings.llama(one));
        all.put("other weights", TestSettings.llama(models.resolve("two")));
        all.put("other block size", TestSettings.llama(one).blockTokens(8));
        all.put("other salt", TestSettings.llama(one).salt("tenant"));
        all.put("synthetic", TestSettings.synthetic().option("dtype", "float16"));
        all.put("other dtype", TestSettings.synthetic().option("dtype", "float32"));
        all.put("other name", TestSettings.synthetic().option("model", "x"));
        return all;
    }

    private static List<List<Integer>> answers(ServedEngine engine) throws Exception {
        var answers = new ArrayList<List<Integer>>();
        for (var prompt : PROMPTS) {
            answers.add(engine.tokens(prompt, ANSWER));
        }
        engine.awaitSaved();
        return answers;
    }

    private static double delivered(ServedEngine engine) throws Exception {
        return engine.metric("kvferry_prompt_tokens_by_source_total", "source=\"connector\"");
    }

    @Test
    void enginesThatDifferNeverSeeEachOthersBlocks() throws Exception {
        var expected = new LinkedHashMap<String, List<List<Integer>>>();
        for (var engine : engines().entrySet()) {
            try (var alone = new ServedEngine(engine.getValue().get())) {
                expected.put(engine.getKey(), answers(alone));
            }
        }
        for (var engine : engines().entrySet()) {
            try (var first = new ServedEngine(engine.getValue().disk(disk).get())) {
                assertThat(answers(first))
                        .as(engine.getKey())
                        .isEqualTo(expected.get(engine.getKey()));
                assertThat(delivered(first)).as("across, %s", engine.getKey()).isZero();
                assertThat(first.metric("kvferry_lookups_total", "")).isPositive();
            }
        }
        for (var engine : engines().entrySet()) {
            try (var again = new ServedEngine(engine.getValue().disk(disk).get())) {
                assertThat(answers(again))
                        .as(engine.getKey())
                        .isEqualTo(expected.get(engine.getKey()));
                assertThat(delivered(again)).as("within, %s", engine.getKey()).isPositive();
                assertThat(again.metric("kvferry_loads_failed_total", "")).isZero();
            }
        }
    }

    @Test
    void tenantsOfOneEngineNeverSeeEachOthersBlocks() throws Exception {
        var settings = TestSettings.llama(models.resolve("one")).disk(disk).get();
        var prompt = PROMPTS.getFirst();
        for (int run = 0; run < 2; run++) {
            try (var engine = new ServedEngine(settings)) {
                double before = 0;
                for (var tenant : List.of("", "a", "b")) {
                    engine.complete(prompt, ANSWER, tenant);
                    double now = delivered(engine);
                    if (run == 0) {
                        assertThat(now).as("first run of tenant \"%s\"", tenant).isZero();
                    } else {
                        assertThat(now)
                                .as("second run of tenant \"%s\"", tenant)
                                .isGreaterThan(before);
                    }
                    before = now;
                    assertThat(
                                    engine.metric(
                                            "kvferry_prompt_tokens_by_source_total",
                                            "source=\"own cache\""))
                            .isZero();
                }
                engine.awaitSaved();
            }
        }
    }
}
