// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.benchmarks.Folders;
import io.kvferry.benchmarks.Tool;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Optional;

/// The limit of a row: `limit.c`, compiled by gcc, as two processes that move the row's ranges with
/// as many threads and connections as the transfer engine uses, or copy them within one.
///
/// Threading: one thread.
final class LimitProgram implements AutoCloseable {
    private static final String SOURCE = "limit.c";
    private static final Duration COMPILING = Duration.ofMinutes(1);

    private final Path folder;
    private final Process server;
    private final Process driver;
    private final BufferedReader answers;

    private LimitProgram(Path folder, String program, long memory) throws IOException {
        this.folder = folder;
        this.server = start(List.of(program, "serve", String.valueOf(memory)));
        var port = server.inputReader(StandardCharsets.UTF_8).readLine();
        this.driver = start(List.of(program, "drive", String.valueOf(memory), port));
        this.answers = driver.inputReader(StandardCharsets.UTF_8);
    }

    private static Process start(List<String> command) throws IOException {
        return new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    }

    /// Empty, after one visible line, where there is no compiler.
    ///
    /// @param memory bytes on each side
    static Optional<LimitProgram> start(long memory) throws IOException, InterruptedException {
        var gcc = Tool.find("gcc", "apt-get install gcc");
        if (gcc.isEmpty()) {
            return Optional.empty();
        }
        var folder = Files.createTempDirectory("kvferry-limit");
        boolean started = false;
        try (var source = LimitProgram.class.getResourceAsStream(SOURCE)) {
            if (source == null) {
                throw new IOException(SOURCE + " is not on the class path");
            }
            Files.copy(source, folder.resolve(SOURCE));
            var program = folder.resolve("limit").toString();
            Tool.run(
                    COMPILING,
                    List.of(
                            gcc.get().toString(),
                            "-O2",
                            "-pthread",
                            "-o",
                            program,
                            folder.resolve(SOURCE).toString()));
            var limit = new LimitProgram(folder, program, memory);
            started = true;
            return Optional.of(limit);
        } finally {
            if (!started) {
                Folders.delete(folder);
            }
        }
    }

    /// The command in front of a command that has its processor time printed, see
    /// [#cpuNanos(String)].
    List<String> measuring() {
        return List.of(folder.resolve("limit").toString(), "cpu");
    }

    /// The processor time that stands in the output of a command begun with [#measuring].
    static long cpuNanos(String output) {
        return (long) Child.lastNumber(output, "@cpu ([0-9]+)");
    }

    /// The ranges of a row over sockets.
    Run move(Shape shape, int lanes, int rounds) throws IOException {
        return run(
                shape,
                rounds,
                "move %s %d %d %d %d %d"
                        .formatted(
                                shape.operation().name().toLowerCase(Locale.ROOT),
                                shape.threads(),
                                lanes,
                                shape.block(),
                                shape.batch(),
                                rounds));
    }

    /// The ranges of a row copied within one process.
    Run copy(Shape shape, int lanes, int rounds) throws IOException {
        return run(
                shape,
                rounds,
                "copy %d %d %d %d %d"
                        .formatted(shape.threads(), lanes, shape.block(), shape.batch(), rounds));
    }

    private Run run(Shape shape, int rounds, String line) throws IOException {
        var words = ask(line);
        return new Run((double) shape.bytes() * rounds, words[0], words[1] + words[2]);
    }

    /// Median and 99th percentile in nanoseconds of round trips that fetch so many bytes.
    long[] ping(int reply, int count) throws IOException {
        return ask("ping " + reply + " " + count);
    }

    private long[] ask(String line) throws IOException {
        var out = driver.getOutputStream();
        out.write((line + "\n").getBytes(StandardCharsets.UTF_8));
        out.flush();
        var answer = answers.readLine();
        if (answer == null) {
            throw new IOException("the limit's process ended; see its messages");
        }
        return Arrays.stream(answer.split(" ")).mapToLong(Long::parseLong).toArray();
    }

    @Override
    public void close() throws IOException {
        driver.destroyForcibly();
        server.destroyForcibly();
        Folders.delete(folder);
    }
}
