// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

import java.io.BufferedReader;
import java.io.IOException;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/// Ctrl-C at a terminal, which signals the whole process group: the command ends with 130, its
/// child processes end, its port is free, its temporary folders are gone.
@Timeout(300) // several virtual machines start in each
class InterruptTest {
    /// What a shell answers for SIGINT.
    private static final int INTERRUPTED = 130;

    private static final Duration LIMIT = Duration.ofSeconds(240);

    /// A build that runs in the background of a shell ignores SIGINT, and its children would too.
    private static final List<String> ANSWERS_INT = List.of("env", "--default-signal=INT");

    private static final Pattern URL = Pattern.compile("http://127\\.0\\.0\\.1:(\\d+)");

    @TempDir Path folder;

    private final List<Terminal> terminals = new ArrayList<>();

    @AfterEach
    void close() {
        terminals.forEach(Terminal::close);
    }

    /// A command in a pseudo terminal of its own, which `script` makes.
    private static final class Terminal {
        private final Process script;
        private final BufferedReader screen;
        private List<ProcessHandle> processes = List.of();

        Terminal(Path folder, String... arguments) throws IOException {
            var command =
                    new ArrayList<>(
                            List.of(
                                    Path.of(System.getProperty("java.home"), "bin", "java")
                                            .toString(),
                                    "--sun-misc-unsafe-memory-access=allow",
                                    "-XX:+UseSerialGC",
                                    "-XX:TieredStopAtLevel=1",
                                    "-Djava.io.tmpdir=" + folder,
                                    "-Dkvferry.home=" + folder.resolveSibling("home"),
                                    "-cp",
                                    System.getProperty("java.class.path"),
                                    "io.kvferry.serving.cli.Main"));
            command.addAll(List.of(arguments));
            var line = command.stream().map(Terminal::quote).collect(Collectors.joining(" "));
            script =
                    new ProcessBuilder(
                                    "script",
                                    "-qefc",
                                    "exec " + String.join(" ", ANSWERS_INT) + " " + line,
                                    "/dev/null")
                            .redirectErrorStream(true)
                            .start();
            screen = script.inputReader(StandardCharsets.UTF_8);
            CompletableFuture.delayedExecutor(LIMIT.toSeconds(), TimeUnit.SECONDS)
                    .execute(this::close); // then reading ends, and the test with it
        }

        private static String quote(String word) {
            return "'" + word.replace("'", "'\\''") + "'";
        }

        /// Reads until a line contains `text`.
        String await(String text) throws IOException {
            var seen = new StringBuilder();
            for (var line = screen.readLine(); line != null; line = screen.readLine()) {
                seen.append(line).append('\n');
                if (line.contains(text)) {
                    processes = script.descendants().toList();
                    return line;
                }
            }
            throw new AssertionError("ended before \"" + text + "\":\n" + seen);
        }

        /// Presses Ctrl-C; answers the exit code.
        int interrupt() throws Exception {
            script.getOutputStream().write(3);
            script.getOutputStream().flush();
            while (screen.readLine() != null) {
                // to its end, so that it never waits for a reader
            }
            assertThat(script.waitFor(60, TimeUnit.SECONDS)).as("ended").isTrue();
            return script.exitValue();
        }

        void assertNoProcessLeft(int atLeast) throws Exception {
            assertThat(processes).hasSizeGreaterThanOrEqualTo(atLeast);
            for (var process : processes) {
                process.onExit().get(30, TimeUnit.SECONDS);
            }
        }

        void close() {
            processes.forEach(ProcessHandle::destroyForcibly);
            script.destroyForcibly();
        }
    }

    private static boolean works(String... command) throws InterruptedException {
        try {
            var process = new ProcessBuilder(command).redirectErrorStream(true).start();
            return process.waitFor(10, TimeUnit.SECONDS) && process.exitValue() == 0;
        } catch (IOException e) {
            return false; // there is no such program
        }
    }

    private Terminal open(String... arguments) throws IOException, InterruptedException {
        Assumptions.assumeTrue(
                works("script", "-qefc", "true", "/dev/null"),
                "no pseudo terminal without the program script of util-linux");
        Assumptions.assumeTrue(
                works(ANSWERS_INT.getFirst(), ANSWERS_INT.getLast(), "true"),
                "SIGINT may be ignored here, and env of this system cannot undo that");
        var terminal = new Terminal(Files.createDirectory(folder.resolve("tmp")), arguments);
        terminals.add(terminal);
        return terminal;
    }

    private static int port(String line) {
        var url = URL.matcher(line);
        assertThat(url.find()).as(line).isTrue();
        return Integer.parseInt(url.group(1));
    }

    private static void assertPortIsFree(int port) {
        assertThatThrownBy(
                        () -> {
                            try (var _ = new Socket(InetAddress.getLoopbackAddress(), port)) {
                                throw new AssertionError("port " + port + " still answers");
                            }
                        })
                .isInstanceOf(ConnectException.class);
    }

    private void assertNoTemporaryFolderLeft() throws IOException {
        try (var left = Files.list(folder.resolve("tmp"))) {
            assertThat(left.filter(Files::isDirectory).map(Path::getFileName))
                    .as("folders in the temporary folder")
                    .noneMatch(name -> name.toString().startsWith("kvferry"));
        }
    }

    @Test
    void endsServeAndItsWorkerProcesses() throws Exception {
        var serve =
                open(
                        "serve",
                        "--runner",
                        "synthetic",
                        "--tp",
                        "2",
                        "--worker-processes",
                        "--port",
                        "0");
        int port = port(serve.await("serving synthetic"));
        assertThat(serve.interrupt()).isEqualTo(INTERRUPTED);
        serve.assertNoProcessLeft(3);
        assertPortIsFree(port);
        assertNoTemporaryFolderLeft();
    }

    @Test
    void endsTheRouter() throws Exception {
        var route =
                open(
                        "route",
                        "--prefill",
                        "http://127.0.0.1:1",
                        "--decode",
                        "http://127.0.0.1:1",
                        "--port",
                        "0");
        int port = port(route.await("routing 1 prefill"));
        assertThat(route.interrupt()).isEqualTo(INTERRUPTED);
        route.assertNoProcessLeft(1);
        assertPortIsFree(port);
    }

    @Test
    void endsTheDemoWhileItsProcessesStart() throws Exception {
        var demo = open("demo", "--runner", "llama");
        demo.await("starting prefill");
        assertThat(demo.interrupt()).isEqualTo(INTERRUPTED);
        demo.assertNoProcessLeft(1);
        assertNoTemporaryFolderLeft();
    }

    @Test
    void endsTheDemoWhileItSendsPrompts() throws Exception {
        var demo = open("demo", "--runner", "llama");
        int port = port(demo.await("prompts through"));
        assertThat(demo.interrupt()).isEqualTo(INTERRUPTED);
        demo.assertNoProcessLeft(4);
        assertPortIsFree(port);
        assertNoTemporaryFolderLeft();
    }
}
