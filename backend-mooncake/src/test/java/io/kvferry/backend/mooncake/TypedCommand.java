// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import io.kvferry.spi.command.CommandProvider;
import io.kvferry.spi.config.OptionValues;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// A command as a user types it, and what it printed.
///
/// @param json whether `--json` was given
/// @param printed standard output
/// @param said standard error
public record TypedCommand(
        CommandProvider command,
        OptionValues options,
        List<String> arguments,
        boolean json,
        StringWriter printed,
        StringWriter said)
        implements CommandProvider.Context {
    public static TypedCommand of(
            CommandProvider command, Map<String, Object> options, String... arguments) {
        return new TypedCommand(
                command,
                command.options().read("test", options),
                List.of(arguments),
                false,
                new StringWriter(),
                new StringWriter());
    }

    /// The same with `--json`.
    public TypedCommand asJson() {
        return new TypedCommand(
                command, options, arguments, true, new StringWriter(), new StringWriter());
    }

    /// Runs it, and returns its exit code.
    public int run() throws InterruptedException {
        return command.run(this);
    }

    @Override
    public PrintWriter out() {
        return new PrintWriter(printed);
    }

    @Override
    public PrintWriter err() {
        return new PrintWriter(said);
    }

    @Override
    public Optional<Path> pluginFolder() {
        return Optional.empty();
    }

    @Override
    public void serveUntilStopped(String ready, Map<String, Object> facts) {
        throw new AssertionError("it is no server");
    }
}
