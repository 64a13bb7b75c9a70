// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import io.kvferry.engine.Engine;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/// A whole engine in a JVM of its own, to be killed. It obeys lines on its input, `SEED TRANSFER`:
/// the prompt of that seed, as a prefiller or as a decoder, and says `TRANSFER TOKENS` when it is
/// done.
final class EngineChild implements AutoCloseable {
    private static final Map<String, Object> ALONE = Map.of("rehearsal", false);

    static final int PROMPT_TOKENS = 300;

    private final Process process;
    private final BlockingQueue<String> said = new LinkedBlockingQueue<>();

    public static void main(String[] arguments) throws IOException {
        boolean prefills = arguments[0].equals("prefill");
        int port = Integer.parseInt(arguments[1]);
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (var engine =
                prefills
                        ? EnginePair.prefiller(port, 1, Map.of(), ALONE)
                        : EnginePair.decoder(1, Map.of(), ALONE)) {
            System.out.println("READY");
            for (var line = in.readLine(); line != null; line = in.readLine()) {
                obey(engine, prefills, port, line.split(" "));
            }
        }
    }

    private static void obey(Engine engine, boolean prefills, int port, String[] word) {
        var prompt = EnginePair.prompt(Integer.parseInt(word[0]), PROMPT_TOKENS);
        var handle =
                prefills
                        ? EnginePair.prefill(engine, prompt, word[1])
                        : EnginePair.decode(engine, prompt, port, word[1]);
        Thread.ofVirtual()
                .start(() -> {
                    var outcome = EnginePair.finished(handle);
                    System.out.println(
                            word[1]
                                    + " loaded "
                                    + EnginePair.loaded(outcome)
                                    + " "
                                    + Arrays.toString(outcome.tokens()));
                });
    }

    // The parent's end.

    EngineChild(String role, int port) throws IOException {
        process =
                new ProcessBuilder(
                                ProcessHandle.current().info().command().orElse("java"),
                                "-XX:+UseSerialGC",
                                "-XX:TieredStopAtLevel=1",
                                "--enable-native-access=ALL-UNNAMED",
                                SharedSideChannelTest.flag(),
                                "-cp",
                                System.getProperty("java.class.path"),
                                EngineChild.class.getName(),
                                role,
                                String.valueOf(port))
                        .redirectError(ProcessBuilder.Redirect.DISCARD)
                        .start();
        var out = process.inputReader(StandardCharsets.UTF_8);
        Thread.ofPlatform()
                .daemon(true)
                .start(() -> {
                    try {
                        for (var line = out.readLine(); line != null; line = out.readLine()) {
                            said.add(line);
                        }
                    } catch (IOException e) {
                        said.add("gone " + e.getMessage());
                    }
                });
    }

    /// The next line it says.
    String hear() {
        try {
            var line = said.poll(60, TimeUnit.SECONDS);
            if (line != null) {
                return line;
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        throw new AssertionError("the child engine says nothing");
    }

    void tell(int seed, String transferId) {
        try {
            process.getOutputStream()
                    .write((seed + " " + transferId + "\n").getBytes(StandardCharsets.UTF_8));
            process.getOutputStream().flush();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /// kill -9
    void kill() {
        process.destroyForcibly().onExit().join();
    }

    @Override
    public void close() {
        kill();
    }
}
