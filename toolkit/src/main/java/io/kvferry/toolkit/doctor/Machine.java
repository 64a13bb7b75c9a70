// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.doctor;

import io.kvferry.spi.Finding;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/// Looks for libraries, programs and Python modules without loading or changing anything.
///
/// Threading: any thread.
public final class Machine {
    /// For a probe in another process.
    private static final long PROBE_SECONDS = 10;

    private Machine() {}

    /// Whether a native library is where the dynamic linker would find it.
    ///
    /// @param file beginning of the file's name, such as `libibverbs.so.1`
    public static Finding library(String what, String file, String remedy) {
        return findLibrary(file)
                .map(path -> Finding.ok(what, path.toString()))
                .orElseGet(() -> Finding.optional(what, file + " not found", remedy));
    }

    /// Whether a native library is at the path that an environment variable names, else where the
    /// dynamic linker would find it.
    public static Finding library(String what, String variable, String file, String remedy) {
        var named = Optional.ofNullable(System.getenv(variable)).map(Path::of);
        if (named.isPresent() && !Files.isReadable(named.get())) {
            return Finding.optional(
                    what, variable + " names " + named.get() + ", which cannot be read", remedy);
        }
        return named.or(() -> findLibrary(file))
                .map(path -> Finding.ok(what, path.toString()))
                .orElseGet(() ->
                        Finding.optional(
                                what,
                                "neither " + variable + " nor " + file + " on the library path",
                                remedy));
    }

    /// Whether a program is on `PATH`.
    public static Finding program(String name, String remedy) {
        var path = Optional.ofNullable(System.getenv("PATH")).orElse("");
        return Stream.of(path.split(File.pathSeparator, -1))
                .map(folder -> Path.of(folder, name))
                .filter(Files::isExecutable)
                .findFirst()
                .map(file -> Finding.ok(name, file.toString()))
                .orElseGet(() -> Finding.optional(name, "not on PATH", remedy));
    }

    /// Whether the system's Python has a module.
    public static Finding pythonModule(String module, String remedy) {
        var what = "Python module " + module;
        var code = "import importlib.util as u; print(u.find_spec('" + module + "').origin)";
        return output("python3", "-c", code)
                .map(origin -> Finding.ok(what, origin))
                .orElseGet(() -> Finding.optional(what, "not found", remedy));
    }

    /// Where the dynamic linker would look, without loading anything.
    private static Optional<Path> findLibrary(String name) {
        return Stream.of(
                        System.getenv("LD_LIBRARY_PATH"),
                        System.getProperty("java.library.path"),
                        "/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:/lib:/usr/local/lib:/opt/ucx/lib")
                .filter(path -> path != null && !path.isEmpty())
                .flatMap(path -> Stream.of(path.split(File.pathSeparator, -1)))
                .filter(path -> !path.isEmpty())
                .map(Path::of)
                .distinct()
                .flatMap(folder -> entries(folder, name).stream())
                .findFirst();
    }

    /// Files whose names begin so; none where the folder is absent or may not be read, which the
    /// linker passes over too.
    private static List<Path> entries(Path folder, String prefix) {
        try (var files = Files.list(folder)) {
            return files.filter(file -> String.valueOf(file.getFileName()).startsWith(prefix))
                    .sorted()
                    .toList();
        } catch (IOException e) {
            return List.of();
        }
    }

    private static Optional<String> output(String... command) {
        try {
            var process =
                    new ProcessBuilder(command)
                            .redirectError(ProcessBuilder.Redirect.DISCARD)
                            .start();
            try (var out = process.getInputStream()) {
                var text = new String(out.readNBytes(4096), StandardCharsets.UTF_8).strip();
                if (!process.waitFor(PROBE_SECONDS, TimeUnit.SECONDS)) {
                    process.destroyForcibly();
                    return Optional.empty();
                }
                return process.exitValue() == 0 ? Optional.of(text) : Optional.empty();
            }
        } catch (IOException e) {
            return Optional.empty();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return Optional.empty();
        }
    }
}
