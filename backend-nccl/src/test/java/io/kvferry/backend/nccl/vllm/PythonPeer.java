// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Assumptions;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/// A script of `interop/nccl` in a Python that has pyzmq and msgpack. What it says are lines that
/// begin with `@ `.
public final class PythonPeer implements AutoCloseable {
    private static final String PYTHON = "KVFERRY_MOONCAKE_PYTHON";
    private static final List<String> PLACES =
            List.of("../interop/.venv-mooncake/bin/python", "interop/.venv-mooncake/bin/python");
    private static final String GONE = "gone";
    private static final long SILENCE_SECONDS = 100;

    private final Process process;
    private final Path errors;
    private final BlockingQueue<String> said = new LinkedBlockingQueue<>();

    /// Skips the test where there is no such Python.
    public PythonPeer(String script, List<String> arguments) throws IOException {
        var command = new ArrayList<>(List.of(python(), "-B", "../interop/nccl/" + script));
        command.addAll(arguments);
        errors = Files.createTempFile("kvferry-python", ".err");
        process = start(command, errors);
        var out = process.inputReader(StandardCharsets.UTF_8);
        Thread.ofPlatform().daemon(true).start(() -> read(out));
    }

    private static Process start(List<String> command, Path errors) throws IOException {
        try {
            return new ProcessBuilder(command).redirectError(errors.toFile()).start();
        } catch (IOException e) {
            Files.deleteIfExists(errors);
            throw e;
        }
    }

    private void read(BufferedReader out) {
        try {
            for (var line = out.readLine(); line != null; line = out.readLine()) {
                said.add(line);
            }
        } catch (IOException _) { // it was killed
        }
        said.add(GONE);
    }

    private static String python() throws IOException {
        var named = Optional.ofNullable(System.getenv(PYTHON)).filter(text -> !text.isBlank());
        var installed =
                PLACES.stream().filter(place -> Files.isExecutable(Path.of(place))).findFirst();
        Assumptions.assumeTrue(
                named.isPresent() || installed.isPresent(),
                "no pyzmq: interop/install-peers gets it, or name a Python that has it in "
                        + PYTHON);
        var python = named.orElseGet(installed::orElseThrow);
        Assumptions.assumeTrue(
                imports(python, "import zmq, msgpack"),
                python + " has no pyzmq or no msgpack: install them there");
        return python;
    }

    private static boolean imports(String python, String statement) throws IOException {
        var process =
                new ProcessBuilder(python, "-c", statement)
                        .redirectError(ProcessBuilder.Redirect.DISCARD)
                        .start();
        try {
            return process.waitFor(60, TimeUnit.SECONDS) && process.exitValue() == 0;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        } finally {
            process.destroyForcibly();
        }
    }

    public void tell(String line) {
        try {
            process.getOutputStream().write((line + "\n").getBytes(StandardCharsets.UTF_8));
            process.getOutputStream().flush();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /// What it says next; fails the test where it says nothing, or has ended.
    public String hear() {
        try {
            var line = said.poll(SILENCE_SECONDS, TimeUnit.SECONDS);
            if (line == null || !line.startsWith("@ ")) {
                throw new AssertionError(
                        "the Python peer says %s, alive: %s, it wrote: %s"
                                .formatted(line, process.isAlive(), Files.readString(errors)));
            }
            return line.substring(2);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(e);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /// kill -9
    public void kill() {
        assertThat(process.isAlive()).as("it has ended by itself").isTrue();
        process.destroyForcibly().onExit().join();
    }

    @Override
    public void close() {
        process.destroyForcibly().onExit().join();
        try {
            Files.deleteIfExists(errors);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
