// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.testkit;

import io.kvferry.backend.mooncake.EngineRuns;
import io.kvferry.engine.Engine;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;

/// A whole engine in a JVM of its own, to be killed. It obeys lines on its input, `SEED TRANSFER`:
/// the prompt of that seed, as a prefiller or as a decoder, and says `TRANSFER TOKENS` when it is
/// done.
public final class EngineChild implements AutoCloseable {
    private static final Map<String, Object> ALONE = Map.of("rehearsal", false);

    public static final int PROMPT_TOKENS = 300;

    private final ChildJvm process;

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
        var prompt = EngineRuns.prompt(Integer.parseInt(word[0]), PROMPT_TOKENS);
        var handle =
                prefills
                        ? EnginePair.prefill(engine, prompt, word[1])
                        : EnginePair.decode(engine, prompt, port, word[1]);
        Thread.ofVirtual()
                .start(() -> {
                    var outcome = EngineRuns.finished(handle);
                    System.out.println(
                            word[1]
                                    + " loaded "
                                    + EngineRuns.loaded(outcome)
                                    + " "
                                    + Arrays.toString(outcome.tokens()));
                });
    }

    // The parent's end.

    public EngineChild(String role, int port) throws IOException {
        process = new ChildJvm(EngineChild.class, role, String.valueOf(port));
    }

    /// The next line it says.
    public String hear() {
        return process.hear("");
    }

    public void tell(int seed, String transferId) {
        process.tell(seed + " " + transferId);
    }

    /// kill -9
    public void kill() {
        process.kill();
    }

    @Override
    public void close() {
        kill();
    }
}
