// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.testkit;

import org.junit.jupiter.api.Assumptions;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/// A process of `interop/connector/peer.py`: a real Mooncake engine behind real pyzmq and msgspec.
public final class PythonPeer implements AutoCloseable {
    private static final String PYTHON = "KVFERRY_MOONCAKE_PYTHON";
    private static final List<String> PLACES =
            List.of("../interop/.venv-mooncake/bin/python", "interop/.venv-mooncake/bin/python");

    private final Process process;
    private final BufferedReader out;

    public PythonPeer(String... arguments) throws IOException {
        var command = new ArrayList<>(List.of(python(), "../interop/connector/peer.py"));
        command.addAll(List.of(arguments));
        process =
                new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.DISCARD).start();
        out =
                new BufferedReader(
                        new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
    }

    /// A Python with Mooncake, pyzmq and msgspec; skips the test when there is none.
    public static String python() {
        var named = Optional.ofNullable(System.getenv(PYTHON)).filter(text -> !text.isBlank());
        var installed =
                PLACES.stream().filter(place -> Files.isExecutable(Path.of(place))).findFirst();
        Assumptions.assumeTrue(
                named.isPresent() || installed.isPresent(),
                "no real Mooncake: interop/install-peers gets it, or name a Python that has it in "
                        + PYTHON);
        return named.orElseGet(installed::orElseThrow);
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

    /// The next answer line, without its mark.
    public String answer() throws IOException {
        for (String line = out.readLine(); line != null; line = out.readLine()) {
            if (line.startsWith("@ ")) {
                return line.substring(2);
            }
        }
        throw new IOException("the peer ended; run interop/connector/peer.py by hand to see why");
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
