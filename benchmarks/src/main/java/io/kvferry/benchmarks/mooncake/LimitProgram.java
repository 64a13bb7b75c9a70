// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.benchmarks.CProgram;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Optional;

/// The limit of a row: `limit.c`, compiled by gcc, as two processes that move the row's ranges with
/// as many threads and connections as the transfer engine uses, or copy them within one.
///
/// Threading: one thread.
public final class LimitProgram implements AutoCloseable {
    private static final String SOURCE = "limit.c";

    private final CProgram program;
    private final Process server;
    private final Process driver;
    private final BufferedReader answers;

    private LimitProgram(CProgram program, long memory, Pages pages) throws IOException {
        this.program = program;
        var kind = pages.name().toLowerCase(Locale.ROOT);
        this.server = start(List.of(path(program), "serve", String.valueOf(memory), kind));
        var port = server.inputReader(StandardCharsets.UTF_8).readLine();
        this.driver = start(List.of(path(program), "drive", String.valueOf(memory), kind, port));
        this.answers = driver.inputReader(StandardCharsets.UTF_8);
    }

    /// What memory is made of: huge pages of one process, as far as the kernel has them, or small
    /// ones that several could map.
    public enum Pages {
        HUGE,
        SHARED
    }

    private static String path(CProgram program) {
        return program.program().toString();
    }

    private static Process start(List<String> command) throws IOException {
        return new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    }

    /// Empty, after one visible line, where there is no compiler.
    ///
    /// @param memory bytes on each side
    /// @param pages what it is made of, as the engine's
    public static Optional<LimitProgram> start(long memory, Pages pages)
            throws IOException, InterruptedException {
        var program = CProgram.compile(LimitProgram.class, SOURCE);
        boolean started = false;
        try {
            var limit = program.isPresent() ? new LimitProgram(program.get(), memory, pages) : null;
            started = true;
            return Optional.ofNullable(limit);
        } finally {
            if (!started && program.isPresent()) {
                program.get().close();
            }
        }
    }

    /// Both processes run there from now on.
    void place(Placement placement) throws IOException, InterruptedException {
        placement.asking(driver.pid());
        placement.serving(server.pid());
    }

    /// The command in front of a command that has its processor time printed, see
    /// [#cpuNanos(String)].
    public List<String> measuring() {
        return List.of(path(program), "cpu");
    }

    /// The processor time that stands in the output of a command begun with [#measuring].
    static long cpuNanos(String output) {
        return (long) Child.lastNumber(output, "@cpu ([0-9]+)");
    }

    /// The ranges of a row over sockets.
    public Run move(Shape shape, int lanes, int rounds) throws IOException {
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
    public Run copy(Shape shape, int lanes, int rounds) throws IOException {
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
        program.close();
    }
}
