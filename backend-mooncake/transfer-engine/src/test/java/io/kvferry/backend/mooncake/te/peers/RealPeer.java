// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.peers;

import io.kvferry.backend.mooncake.te.EngineConfig;

import org.junit.jupiter.api.Assumptions;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/// A real Mooncake engine in a Python process, see `interop/mooncake/peer.py`.
public final class RealPeer implements AutoCloseable {
    private static final String PYTHON = "KVFERRY_MOONCAKE_PYTHON";

    private final Process process;
    private final BufferedReader out;
    public final String segmentName;
    public final long address;

    /// The Python that has Mooncake; skips the test when there is none.
    public static String python() {
        Optional<String> named =
                Optional.ofNullable(System.getenv(PYTHON)).filter(text -> !text.isBlank());
        Path installed = Path.of("../../interop/.venv-mooncake/bin/python");
        Assumptions.assumeTrue(
                named.isPresent() || Files.isExecutable(installed),
                "no real Mooncake: interop/install-peers gets it, or name a Python that has it in "
                        + PYTHON);
        return named.orElseGet(installed::toString);
    }

    public RealPeer(String metadata, String name, long bytes, Map<String, String> environment)
            throws IOException {
        var builder =
                new ProcessBuilder(
                                python(),
                                "../../interop/mooncake/peer.py",
                                metadata,
                                name,
                                String.valueOf(bytes))
                        .redirectError(ProcessBuilder.Redirect.DISCARD);
        builder.environment().putAll(environment);
        process = builder.start();
        out =
                new BufferedReader(
                        new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        String[] ready = answer().split(" ");
        segmentName = ready[1];
        address = Long.parseLong(ready[2]);
    }

    public static RealPeer p2p(long bytes, Map<String, String> environment) throws IOException {
        return new RealPeer(EngineConfig.P2P, "127.0.0.1", bytes, environment);
    }

    public String ask(String command, Object... arguments) {
        try {
            process.getOutputStream()
                    .write((command.formatted(arguments) + "\n").getBytes(StandardCharsets.UTF_8));
            process.getOutputStream().flush();
            return answer();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private String answer() throws IOException {
        for (String line = out.readLine(); line != null; line = out.readLine()) {
            if (line.startsWith("@ ")) {
                return line.substring(2);
            }
        }
        throw new IOException("the Mooncake process ended");
    }

    public void kill() {
        process.destroyForcibly().onExit().join();
    }

    @Override
    public void close() throws IOException {
        process.getOutputStream().close();
        try {
            if (!process.waitFor(10, TimeUnit.SECONDS)) {
                kill();
            }
        } catch (InterruptedException e) {
            kill();
            Thread.currentThread().interrupt();
        }
    }
}
