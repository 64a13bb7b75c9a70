// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.command;

import io.kvferry.spi.config.OptionValues;

import java.io.PrintWriter;
import java.util.List;
import java.util.Map;

/// What the host gives to a running command.
///
/// Threading: the thread of [CommandProvider#run].
public interface CommandContext {
    /// The validated options; every one with a default has a value.
    OptionValues options();

    /// As many as [CommandProvider#arguments] allows.
    List<String> arguments();

    /// Standard output: results, one line each where scripts read them. The host flushes it at the
    /// end.
    PrintWriter out();

    /// Standard error: everything else.
    PrintWriter err();

    /// Whether the user asked for JSON on standard output (`--json`, which the host adds to every
    /// command).
    boolean json();

    /// Says that a server command is ready, and returns when it shall stop: by SIGTERM or SIGINT,
    /// or with the end of standard input where the user asked for that. The process then waits a
    /// bounded time for [CommandProvider#run] to return.
    ///
    /// @param ready one line for people
    /// @param facts what is printed instead with `--json`: values are String, Boolean or Number
    void serveUntilStopped(String ready, Map<String, Object> facts);
}
