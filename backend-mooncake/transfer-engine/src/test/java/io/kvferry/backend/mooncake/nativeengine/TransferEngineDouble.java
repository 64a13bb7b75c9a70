// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.nativeengine;

import org.junit.jupiter.api.Assumptions;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Objects;

/// The C double of `libtransfer_engine`, see `transfer_engine_double.c`.
public final class TransferEngineDouble {
    private TransferEngineDouble() {}

    /// Compiles it; skips the test where there is no gcc.
    public static Path compile(Path folder) {
        Path source = folder.resolve("double.c");
        Path library = folder.resolve("libtransfer_engine_double.so");
        try (InputStream code =
                TransferEngineDouble.class.getResourceAsStream("transfer_engine_double.c")) {
            Files.copy(Objects.requireNonNull(code), source);
            int rc =
                    new ProcessBuilder(
                                    "gcc",
                                    "-shared",
                                    "-fPIC",
                                    "-O1",
                                    "-o",
                                    library.toString(),
                                    source.toString(),
                                    "-lpthread")
                            .inheritIO()
                            .start()
                            .waitFor();
            if (rc != 0) {
                throw new AssertionError("gcc returned " + rc);
            }
        } catch (IOException e) {
            Assumptions.abort(
                    "no gcc on the PATH: apt-get install gcc libc6-dev runs this test (" + e + ")");
            throw new UncheckedIOException(e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(e);
        }
        return library;
    }
}
