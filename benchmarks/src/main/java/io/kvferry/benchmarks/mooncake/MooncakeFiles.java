// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;

/// Where real Mooncake is: the Python environment that `interop/install-peers` makes, named by its
/// Python in `KVFERRY_MOONCAKE_PYTHON` or by the folder of all environments in `KVFERRY_PEERS`.
public final class MooncakeFiles {
    private static final String PYTHON = "KVFERRY_MOONCAKE_PYTHON";
    private static final String PEERS = "KVFERRY_PEERS";

    private MooncakeFiles() {}

    /// The Python whose packages hold Mooncake; empty, after one visible line, without one.
    public static Optional<Path> python(String forWhat) {
        var python =
                Optional.ofNullable(System.getenv(PYTHON))
                        .map(Path::of)
                        .or(() ->
                                Optional.ofNullable(System.getenv(PEERS))
                                        .map(Path::of)
                                        .map(peers -> peers.resolve(".venv-mooncake/bin/python")))
                        .filter(Files::isExecutable);
        if (python.isEmpty()) {
            skipped(forWhat);
        }
        return python;
    }

    /// A program among these packages; empty, after one visible line, without it.
    public static Optional<Path> program(String name) throws IOException {
        var python = python(name);
        if (python.isEmpty()) {
            return Optional.empty();
        }
        Path lib = python.get().resolveSibling("../lib");
        try (var files = Files.find(lib, 5, (path, _) -> path.endsWith("mooncake/" + name))) {
            Optional<Path> found = files.filter(Files::isExecutable).findFirst();
            if (found.isEmpty()) {
                skipped(name);
            }
            return found;
        }
    }

    private static void skipped(String what) {
        System.out.println(
                "SKIPPED "
                        + what
                        + ": interop/install-peers gets Mooncake; name its Python in "
                        + PYTHON
                        + " or the folder with its environment in "
                        + PEERS);
    }
}
