// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.command;

import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.Plugin;
import io.kvferry.spi.config.OptionValues;

import java.io.PrintWriter;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;

/// A command that a plugin adds to the `kvferry` command line: a server process that belongs to its
/// backend, or a tool for its store. Found by [java.util.ServiceLoader]; needs a public constructor
/// without arguments.
///
/// [#name] is what the user types: lower-case words of letters, digits and dashes, separated by one
/// space for a group of commands (`store ls`). [#options] become `--long-options`, underscores as
/// dashes, and are read strictly before [#run]. Names must not collide with a command of the host
/// or of another plugin: the host leaves such a command out and says which two. The host adds the
/// options `--help`, `--json`, `--plugin-folder` and `--stop-with-stdin` to every command.
///
/// The contract knows no parser library: the host owns parsing, help texts, exit codes of errors,
/// and signals.
public interface CommandProvider extends Plugin {
    /// Arguments of the command, beside its options.
    ///
    /// @param label for the usage line, such as `KEY`
    /// @param least fewest arguments
    /// @param most most arguments; [Integer#MAX_VALUE] for any number
    /// @param description one line for the help text
    record Arguments(String label, int least, int most, String description) {
        /// A command with options only.
        public static final Arguments NONE = new Arguments("", 0, 0, "");

        public Arguments {
            Objects.requireNonNull(label, "label");
            Objects.requireNonNull(description, "description");
            if (least < 0 || most < least) {
                throw new IllegalArgumentException("arguments: " + least + " to " + most);
            }
        }
    }

    /// The arguments after the options. Everything after a first `--` is an argument, as it is: the
    /// command line of another program, for instance.
    default Arguments arguments() {
        return Arguments.NONE;
    }

    /// Runs the command.
    ///
    /// Called on the process's main thread, once per process.
    ///
    /// @return the exit code: 0 done, 1 it ran and the result is bad; a command that runs another
    ///   program passes that program's code on
    /// @throws KvFerryException when it could not be done; the host prints the message as one line
    ///   and ends with 2 for codes of the categories usage, config and incompatible, else with 3
    /// @throws InterruptedException when the user interrupts it
    int run(Context context) throws InterruptedException;

    /// The environment of a running command, supplied by the host.
    ///
    /// Threading: the thread of [CommandProvider#run].
    interface Context {
        /// The validated options; every one with a default has a value.
        OptionValues options();

        /// As many as [CommandProvider#arguments] allows.
        List<String> arguments();

        /// Standard output: results, one line each where scripts read them. The host flushes it at
        /// the end.
        PrintWriter out();

        /// Standard error: everything else.
        PrintWriter err();

        /// Whether the user asked for JSON on standard output (`--json`, which the host adds to
        /// every command).
        boolean json();

        /// The folder of more plugins that the user named (`--plugin-folder`, which the host adds
        /// to every command), for `kvferry` processes that this command starts.
        Optional<Path> pluginFolder();

        /// Announces that a server command is ready, and blocks until it must stop: on SIGTERM or
        /// SIGINT, or at the end of standard input if the user asked for that. The process then
        /// waits a bounded time for [CommandProvider#run] to return.
        ///
        /// @param ready one line for people
        /// @param facts what is printed instead with `--json`: values are String, Boolean or Number
        void serveUntilStopped(String ready, Map<String, Object> facts);
    }
}
