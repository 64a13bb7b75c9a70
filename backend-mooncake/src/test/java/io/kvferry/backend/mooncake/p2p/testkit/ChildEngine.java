// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.testkit;

import io.kvferry.backend.mooncake.p2p.testkit.TestEngine.Shape;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/// A test engine in a JVM of its own, to be killed. It steps all the time and obeys lines on its
/// input: `prefill TRANSFER SEED FIRST_BLOCK`, and `pull BOOTSTRAP ENGINE TRANSFER SEED
/// FIRST_BLOCK`.
public final class ChildEngine implements AutoCloseable {
    public static final Shape SHAPE = new Shape(1, 2, 3, 1, 512, 16 << 10, false);
    public static final int PROMPT_TOKENS = 16 * TestEngine.BLOCK_TOKENS;
    public static final int BLOCKS_PER_REQUEST = 16;

    private final ChildJvm process;

    public static void main(String[] arguments) throws IOException {
        var role = KvRole.valueOf(arguments[0]);
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (var engine =
                new TestEngine(
                        SHAPE,
                        role,
                        arguments[1],
                        Map.of(
                                "bootstrap_port",
                                Integer.valueOf(arguments[2]),
                                "rehearsal",
                                false))) {
            System.out.println("READY " + engine.bootstrap);
            var commands = new LinkedBlockingQueue<String>();
            Thread.ofPlatform().daemon(true).start(() -> in.lines().forEach(commands::add));
            var pulls = new HashMap<TransferId, Pull>();
            while (true) {
                var command = commands.poll(1, TimeUnit.MILLISECONDS);
                if (command != null) {
                    obey(engine, command.split(" "), pulls);
                }
                engine.step();
                pulls.entrySet()
                        .removeIf(entry ->
                                engine.resultNow(entry.getKey())
                                        .map(result -> report(engine, entry.getValue(), result))
                                        .isPresent());
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private record Pull(FakeRequest request, int seed) {}

    private static void obey(TestEngine engine, String[] word, Map<TransferId, Pull> pulls) {
        if (word[0].equals("prefill")) {
            var request =
                    engine.request(
                            word[1],
                            PROMPT_TOKENS,
                            Integer.parseInt(word[3]),
                            TestEngine.decodeElsewhere(word[1]));
            engine.prefill(request, Integer.parseInt(word[2]));
        } else {
            var request =
                    engine.request(
                            word[3],
                            PROMPT_TOKENS,
                            Integer.parseInt(word[5]),
                            TestEngine.prefillAt(word[1], word[2], word[3]));
            pulls.put(engine.beginDecode(request, 0), new Pull(request, Integer.parseInt(word[4])));
        }
    }

    private static Completion.Result report(
            TestEngine engine, Pull pull, Completion.Result result) {
        if (result instanceof Completion.Completed) {
            engine.assertHolds(pull.request(), 0, pull.seed());
        }
        System.out.println(pull.request().id() + " " + result.getClass().getSimpleName());
        return result;
    }

    // The parent's end.

    /// @param port of the bootstrap service, 0 for a free one
    public ChildEngine(KvRole role, String engineId, int port) throws IOException {
        process = new ChildJvm(ChildEngine.class, role.name(), engineId, String.valueOf(port));
    }

    /// The next line it says, other than chatter.
    public String hear(String prefix) {
        return process.hear(prefix);
    }

    /// Where its bootstrap service is.
    public String bootstrap() {
        return hear("READY ").substring("READY ".length());
    }

    public void tell(String command, Object... arguments) {
        process.tell(command.formatted(arguments));
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
