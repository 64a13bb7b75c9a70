// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/// A program of the machine that serves as the limit or the peer.
public final class Tool {
    private Tool() {}

    /// Where the program is, or empty after one visible line that says how to get it.
    public static Optional<Path> find(String program, String howToGet) {
        for (var folder : System.getenv().getOrDefault("PATH", "").split(":")) {
            var candidate = Path.of(folder.isEmpty() ? "." : folder, program);
            if (Files.isExecutable(candidate)) {
                return Optional.of(candidate);
            }
        }
        System.out.println("SKIPPED " + program + ": not on PATH; " + howToGet);
        return Optional.empty();
    }

    /// Syncs all file systems, so that one contender does not pay for another's dirty pages. A
    /// store in use keeps its directories in memory.
    public static void sync() throws IOException, InterruptedException {
        run(Duration.ofMinutes(5), List.of("sync"));
    }

    /// Runs to the end, bounded, and returns standard output.
    public static String run(Duration limit, List<String> command)
            throws IOException, InterruptedException {
        var output = Files.createTempFile("kvferry-bench", ".out");
        var errors = Files.createTempFile("kvferry-bench", ".err");
        try {
            var process =
                    new ProcessBuilder(command)
                            .redirectOutput(output.toFile())
                            .redirectError(errors.toFile())
                            .start();
            if (!process.waitFor(limit.toMillis(), TimeUnit.MILLISECONDS)) {
                process.destroyForcibly();
                throw new IOException(
                        command.getFirst() + " did not end within " + limit.toSeconds() + " s");
            }
            if (process.exitValue() != 0) {
                throw new IOException(
                        String.join(" ", command)
                                + " ended with "
                                + process.exitValue()
                                + ": "
                                + Files.readString(errors, StandardCharsets.UTF_8));
            }
            return Files.readString(output, StandardCharsets.UTF_8);
        } finally {
            Files.deleteIfExists(output);
            Files.deleteIfExists(errors);
        }
    }
}
