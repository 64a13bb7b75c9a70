// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.kvferry.backend.disk.DiskConnectorProvider;
import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.OptionValues;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributeView;
import java.nio.file.attribute.FileTime;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/// What a connector does before its first request, so that this one finds everything loaded.
class RehearsalTest {
    private static final Duration PATIENCE = Duration.ofMinutes(2);

    @TempDir Path folder;

    private static OptionValues options(Map<String, Object> own) {
        var all = new HashMap<String, Object>(own);
        all.put("shared_storage_path", "/nowhere/that/is/used");
        return DiskOptions.SCHEMA.read("test", all);
    }

    private static List<Thread> diskThreads() {
        return Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().startsWith("disk-"))
                .toList();
    }

    /// @param before threads of other tests, some of which leave hanging ones
    private void assertNothingLeft(List<Thread> before) throws Exception {
        assertThat(folder).isEmptyDirectory();
        for (var thread : diskThreads()) {
            if (!before.contains(thread)) {
                thread.join(PATIENCE);
                assertThat(thread.isAlive()).as("%s", thread).isFalse();
            }
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"async", "sync", "none"})
    void savesAndLoadsAndLeavesNothing(String load) throws Exception {
        var before = diskThreads();
        Rehearsal.handOff(options(Map.of("load", load)), folder, 2, Deadline.in(PATIENCE));
        assertNothingLeft(before);
    }

    @Test
    void goesOnWhenItsFolderIsFull() throws Exception {
        var before = diskThreads();
        int prompts = 12; // of 8 MiB each, in 64 MiB
        Rehearsal.handOff(options(Map.of()), folder, prompts, Deadline.in(PATIENCE));
        assertNothingLeft(before);
    }

    @Test
    void aProcessThatEndsMeanwhileLeavesNothing() throws Exception {
        var limit = Deadline.in(PATIENCE);
        boolean tidy = false;
        for (int life = 0; !tidy; life++) {
            assertThat(limit.passed()).as("no process ended in time").isFalse();
            tidy = leavesNothing(Files.createDirectory(folder.resolve("life" + life)));
        }
    }

    /// False where a busy machine left a process no time for that: its rehearsal was over before it
    /// ended, or the end took as long as it waits for the rehearsal.
    private static boolean leavesNothing(Path temporary) throws Exception {
        var process =
                new ProcessBuilder(
                                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                                "--enable-native-access=ALL-UNNAMED",
                                "-Djava.io.tmpdir=" + temporary,
                                "-cp",
                                System.getProperty("java.class.path"),
                                EndsMeanwhile.class.getName())
                        .redirectErrorStream(true)
                        .start();
        try {
            var said = new String(process.getInputStream().readAllBytes(), UTF_8);
            int code = process.waitFor();
            long now = System.currentTimeMillis();
            assertThat(said).doesNotContain("no rehearsal");
            if (code == EndsMeanwhile.TOO_LATE) {
                return false;
            }
            assertThat(code).as(said).isZero();
            long began =
                    said.lines()
                            .filter(line -> line.startsWith(EndsMeanwhile.AT))
                            .mapToLong(line ->
                                    Long.parseLong(line.substring(EndsMeanwhile.AT.length())))
                            .findFirst()
                            .orElseThrow();
            if (now - began < EndsMeanwhile.LONGEST.toMillis()) {
                assertThat(temporary).isEmptyDirectory();
                return true;
            }
            return false;
        } finally {
            process.destroyForcibly();
        }
    }

    /// Ends as soon as the rehearsal has its folder.
    static final class EndsMeanwhile {
        private static final int TOO_LATE = 3;
        private static final String AT = "ends at ";

        /// How long an end waits for the rehearsal.
        private static final Duration LONGEST = Duration.ofSeconds(2);

        private EndsMeanwhile() {}

        public static void main(String[] args) throws Exception {
            var temporary = Path.of(System.getProperty("java.io.tmpdir"));
            Rehearsal.begin(options(Map.of()));
            while (diskThreads().stream().anyMatch(one -> one.getName().equals("disk-rehearsal"))) {
                if (hasBlocks(temporary)) {
                    System.out.println(AT + System.currentTimeMillis());
                    System.out.flush();
                    System.exit(0);
                }
                Thread.sleep(1);
            }
            System.exit(TOO_LATE);
        }

        private static boolean hasBlocks(Path temporary) throws IOException {
            try (var all = Files.walk(temporary)) {
                return all.anyMatch(file -> file.getFileName().toString().equals("blocks"));
            } catch (UncheckedIOException e) { // what was found is gone already
                return false;
            }
        }
    }

    @Test
    void rehearsesBehindASecret() throws Exception {
        var secrets = Files.createDirectory(folder.resolve("secrets"));
        var secret = Files.writeString(secrets.resolve("secret"), "0123456789abcdef");
        var parent = Files.createDirectory(folder.resolve("parent"));
        Rehearsal.handOff(
                options(Map.of("secret_file", secret.toString())),
                parent,
                1,
                Deadline.in(PATIENCE));
        assertThat(parent).isEmptyDirectory();
    }

    @Test
    void givesUpInTimeAndLeavesNothing() throws Exception {
        var before = diskThreads();
        assertThatThrownBy(() ->
                        Rehearsal.handOff(options(Map.of()), folder, 1, Deadline.in(Duration.ZERO)))
                .isInstanceOf(KvFerryException.class);
        assertNothingLeft(before);
    }

    @Test
    void deletesWhatAKilledProcessLeftAndNothingElse() throws Exception {
        var killed = leftover("kvferry-rehearsal-1", Duration.ofHours(1));
        var running = leftover("kvferry-rehearsal-2", Duration.ofMinutes(1));
        var other = leftover("another-1", Duration.ofHours(1));
        var named = leftover("kvferry-rehearsal-results", Duration.ofHours(1));
        var link = folder.resolve("kvferry-rehearsal-3");
        Files.createSymbolicLink(link, other);
        var old = FileTime.from(Instant.now().minus(Duration.ofHours(1)));
        Files.getFileAttributeView(link, BasicFileAttributeView.class, LinkOption.NOFOLLOW_LINKS)
                .setTimes(old, null, null);
        Rehearsal.handOff(options(Map.of()), folder, 1, Deadline.in(PATIENCE));
        assertThat(killed).doesNotExist();
        assertThat(running.resolve("deep").resolve("file")).exists();
        assertThat(named).exists();
        assertThat(link).isSymbolicLink();
        assertThat(other.resolve("deep").resolve("file")).exists();
    }

    private Path leftover(String name, Duration age) throws IOException {
        var left = folder.resolve(name);
        Files.createDirectories(left.resolve("deep"));
        Files.writeString(left.resolve("deep").resolve("file"), "kv");
        Files.setLastModifiedTime(left, FileTime.from(Instant.now().minus(age)));
        return left;
    }

    /// Such as a container without a folder for temporary files.
    @Test
    void neverFailsTheConnector() throws Exception {
        var child = child("rehearse", Map.of("java.io.tmpdir", "/nowhere/at/all"));
        assertThat(child).as("classes that the first load of a process loads").isPositive();
    }

    @Test
    @Timeout(value = 5, unit = TimeUnit.MINUTES)
    void theFirstLoadOfAProcessFindsMostOfItsClassesLoaded() throws Exception {
        int without = child("plain", Map.of());
        int with = child("rehearse", Map.of());
        System.out.println("classes that a first load loads: " + with + ", without " + without);
        assertThat(with).isLessThan(without * 3 / 4);
    }

    private int child(String how, Map<String, String> properties) throws Exception {
        var command = new ArrayList<String>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.add("--enable-native-access=ALL-UNNAMED");
        properties.forEach((name, value) -> command.add("-D" + name + "=" + value));
        command.add("-cp");
        command.add(System.getProperty("java.class.path"));
        command.add(RehearsalTest.class.getName());
        command.add(folder.resolve("kv-" + how + properties.size()).toString());
        command.add(how);
        var child =
                new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.DISCARD).start();
        try (var lines = child.inputReader()) {
            return lines.lines()
                    .filter(line -> line.startsWith("classes "))
                    .mapToInt(line -> Integer.parseInt(line.substring("classes ".length())))
                    .findFirst()
                    .orElseThrow();
        } finally {
            child.destroyForcibly();
            assertThat(child.waitFor(20, TimeUnit.SECONDS)).isTrue();
        }
    }

    /// The child: saves a prompt and loads it, and says how many classes that took.
    public static void main(String[] args) throws Exception {
        var options = new HashMap<String, Object>();
        options.put("shared_storage_path", args[0]);
        options.put("reserve", 0);
        options.put("rehearsal", args[1].equals("rehearse"));
        var prompt = new int[65];
        Arrays.setAll(prompt, i -> i + 1);
        var classes = ManagementFactory.getClassLoadingMXBean();
        try (var engine = open(options)) {
            long before = classes.getTotalLoadedClassCount();
            for (int i = 0; i < 2; i++) { // saved, and then loaded
                var outcome =
                        engine.submit(GenerationRequest.of(prompt, SamplingParams.greedy(1)))
                                .await(Deadline.in(PATIENCE))
                                .orElseThrow();
                if (!(outcome instanceof Outcome.Finished finished)) {
                    throw new AssertionError(outcome);
                }
                while (engine.stats().leasedBlocks() > 0) {
                    Thread.sleep(1);
                }
                if (i == 1 && finished.usage().cachedTokens() == 0) {
                    throw new AssertionError("nothing was loaded");
                }
            }
            System.out.println("classes " + (classes.getTotalLoadedClassCount() - before));
        }
    }

    private static Engine open(Map<String, Object> options) {
        var provider = new DiskConnectorProvider();
        return Engine.open(
                        EngineConfig.of(
                                        new SyntheticProvider(),
                                        Path.of(""),
                                        Map.of("verify", "all"))
                                .blockTokens(16)
                                .blockCount(64)
                                .prefixCache(false)
                                .kvConnector(
                                        provider,
                                        ConnectorConfig.of(
                                                provider.name(), KvRole.BOTH, "e", options)))
                .start();
    }
}
