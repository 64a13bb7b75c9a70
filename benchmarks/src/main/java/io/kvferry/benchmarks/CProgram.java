// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Optional;

/// A C program that serves as a limit, compiled by gcc for the time of a run.
///
/// @param program to execute
/// @param folder of its own, deleted at the end
public record CProgram(Path program, Path folder) implements AutoCloseable {
    private static final Duration COMPILING = Duration.ofMinutes(1);

    /// Empty, after one visible line, where there is no compiler.
    ///
    /// @param source name of a resource beside `owner`
    public static Optional<CProgram> compile(Class<?> owner, String source)
            throws IOException, InterruptedException {
        var gcc = Tool.find("gcc", "apt-get install gcc");
        if (gcc.isEmpty()) {
            return Optional.empty();
        }
        var folder = Files.createTempDirectory("kvferry-limit");
        boolean compiled = false;
        try (var text = owner.getResourceAsStream(source)) {
            if (text == null) {
                throw new IOException(source + " is not on the class path");
            }
            Files.copy(text, folder.resolve(source));
            var program = folder.resolve("limit");
            Tool.run(
                    COMPILING,
                    List.of(
                            gcc.get().toString(),
                            "-O2",
                            "-pthread",
                            "-o",
                            program.toString(),
                            folder.resolve(source).toString()));
            compiled = true;
            return Optional.of(new CProgram(program, folder));
        } finally {
            if (!compiled) {
                Folders.delete(folder);
            }
        }
    }

    @Override
    public void close() throws IOException {
        Folders.delete(folder);
    }
}
