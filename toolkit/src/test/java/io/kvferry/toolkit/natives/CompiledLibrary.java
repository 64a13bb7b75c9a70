// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.natives;

import org.junit.jupiter.api.Assumptions;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;

/// C doubles of libraries, compiled from a test's resources.
public final class CompiledLibrary {
    private CompiledLibrary() {}

    /// Compiles one C file into a shared library in a folder that goes when the JVM ends; skips the
    /// test where there is no gcc, or no headers of libc.
    ///
    /// @param owner whose resource the C file is
    /// @param resource its name, as [Class#getResourceAsStream] takes it, ending in `.c`
    /// @param options more options of gcc, such as `-DNAME`
    public static Path compile(Class<?> owner, String resource, String... options) {
        Assumptions.assumeTrue(
                Files.exists(Path.of("/usr/include/stdio.h")),
                "no headers of libc: apt-get install gcc libc6-dev runs this test");
        String name = resource.substring(resource.lastIndexOf('/') + 1);
        try {
            var folder = Files.createTempDirectory("kvferry-compiled");
            var source = folder.resolve(name);
            var library = folder.resolve("lib" + name.replace(".c", ".so"));
            for (var path : List.of(folder, source, library)) {
                path.toFile().deleteOnExit(); // registered last, deleted first
            }
            try (var code = owner.getResourceAsStream(resource)) {
                Files.copy(Objects.requireNonNull(code, resource), source);
            }
            var command = new ArrayList<>(List.of("gcc", "-shared", "-fPIC", "-O1", "-Wall"));
            command.addAll(List.of(options));
            command.addAll(List.of("-o", library.toString(), source.toString(), "-lpthread"));
            int rc = new ProcessBuilder(command).inheritIO().start().waitFor();
            if (rc != 0) {
                throw new AssertionError("gcc returned " + rc + " for " + resource);
            }
            return library;
        } catch (IOException e) {
            Assumptions.abort(
                    "no gcc on the PATH: apt-get install gcc libc6-dev runs this test (" + e + ")");
            throw new UncheckedIOException(e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(e);
        }
    }
}
