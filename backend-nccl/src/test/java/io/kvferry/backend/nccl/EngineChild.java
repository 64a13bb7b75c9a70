// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.engines.P2pEngines;
import io.kvferry.engine.Engine;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.KvRole;
import io.kvferry.toolkit.staging.BuddyStagingPool;

import org.jspecify.annotations.Nullable;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// A whole engine in a JVM of its own, to be killed, with the data plane of [KilledPlane]. It obeys
/// lines on its input, `SEED TRANSFER`: the prompt of that seed, as a prefiller or as a decoder,
/// and says `@ TRANSFER TOKENS` when it is done.
final class EngineChild implements AutoCloseable {
    static final int PROMPT_TOKENS = 300;
    private static final String GONE = "gone ";

    /// Begins what it says; what has another beginning is of a log, or of a dump of threads.
    private static final String SAYS = "@ ";

    private static final Duration SILENCE = Duration.ofSeconds(150);
    private static final Duration SILENCE_STARVED = Duration.ofSeconds(450);
    private static final Duration LOOK = Duration.ofSeconds(1);
    private static final Duration DUMP = Duration.ofSeconds(10);

    private final Process process;
    private final Path errors;
    private final BlockingQueue<String> said = new LinkedBlockingQueue<>();

    public static void main(String[] arguments) throws IOException {
        boolean prefills = arguments[0].equals("prefill");
        int pPort = Integer.parseInt(arguments[1]);
        int dPort = Integer.parseInt(arguments[2]);
        var kv = KilledPlane.parse(arguments[3]);
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (var pool = new BuddyStagingPool(64 << 20);
                var engine = openPatiently(prefills, pPort, dPort, pool, kv)) {
            System.out.println(SAYS + "READY");
            for (var line = in.readLine(); line != null; line = in.readLine()) {
                obey(engine, prefills, pPort, dPort, kv, line.split(" "));
            }
        }
    }

    /// The port is one of those that the system gives to any connection, and may be in use for a
    /// moment.
    private static Engine openPatiently(
            boolean prefills, int pPort, int dPort, BuddyStagingPool pool, KilledPlane kv) {
        for (int tries = 0; ; tries++) {
            try {
                return open(prefills, pPort, dPort, pool, kv);
            } catch (KvFerryException e) {
                if (tries == 100) {
                    throw e;
                }
                System.err.println("try " + tries + ": " + e);
                LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(100));
            }
        }
    }

    private static Engine open(
            boolean prefills, int pPort, int dPort, BuddyStagingPool pool, KilledPlane kv) {
        var options = P2pEngines.options("PUT_ASYNC", prefills ? pPort : dPort);
        if (prefills) {
            return kv.open(KvRole.PRODUCER, options, HostServices.NONE);
        }
        options.put("push_timeout", "5s"); // twice that for a sender that was too slow to come
        return kv.open(KvRole.CONSUMER, options, P2pEngines.host(pool));
    }

    private static void obey(
            Engine engine, boolean prefills, int pPort, int dPort, KilledPlane kv, String[] word) {
        var prompt = P2pEngines.prompt(Integer.parseInt(word[0]), PROMPT_TOKENS);
        var handle =
                prefills
                        ? kv.prefill(engine, prompt, word[1], pPort, dPort)
                        : kv.decode(engine, prompt, word[1], pPort, dPort);
        Thread.ofVirtual()
                .start(() ->
                        System.out.println(
                                SAYS
                                        + word[1]
                                        + " "
                                        + P2pEngines.tokens(P2pEngines.finished(handle))));
    }

    // The parent's end.

    EngineChild(String role, int pPort, int dPort, KilledPlane kv) throws IOException {
        errors = Files.createTempFile("kvferry-child", ".err");
        process =
                new ProcessBuilder(
                                ProcessHandle.current().info().command().orElse("java"),
                                "-XX:+UseSerialGC",
                                "-XX:TieredStopAtLevel=1",
                                "--enable-native-access=ALL-UNNAMED",
                                "-cp",
                                System.getProperty("java.class.path"),
                                EngineChild.class.getName(),
                                role,
                                String.valueOf(pPort),
                                String.valueOf(dPort),
                                kv.toString())
                        .redirectError(errors.toFile())
                        .start();
        var out = process.inputReader(StandardCharsets.UTF_8);
        Thread.ofPlatform()
                .daemon(true)
                .start(() -> {
                    try {
                        for (var line = out.readLine(); line != null; line = out.readLine()) {
                            said.add(line);
                        }
                        said.add(GONE);
                    } catch (IOException e) {
                        said.add(GONE + e.getMessage());
                    }
                });
    }

    /// The next line it says. A child that could run, but gets no turn on a busy machine, has
    /// longer.
    String hear() {
        var limit = Deadline.in(SILENCE);
        var last = Deadline.in(SILENCE_STARVED);
        var passed = new StringBuilder();
        String line = null;
        while (line == null && (!limit.passed() || !last.passed() && starves())) {
            line = poll(LOOK);
            if (line != null && !line.startsWith(SAYS) && !line.startsWith(GONE)) {
                passed.append(System.lineSeparator()).append(line);
                line = null;
            }
        }
        if (line != null && line.startsWith(SAYS)) {
            return line.substring(SAYS.length());
        }
        var threads = line == null ? threads() : "";
        try {
            throw new AssertionError(
                    "the child engine says nothing, alive: %s, it wrote: %s%s%nits threads: %s"
                            .formatted(
                                    process.isAlive(), Files.readString(errors), passed, threads));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private @Nullable String poll(Duration limit) {
        try {
            return said.poll(limit.toMillis(), TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return null;
        }
    }

    /// Whether a thread of it waits for a processor.
    private boolean starves() {
        try (var tasks = Files.list(Path.of("/proc", String.valueOf(process.pid()), "task"))) {
            return tasks.anyMatch(task -> {
                try {
                    var stat = Files.readString(task.resolve("stat"));
                    return stat.startsWith("R", stat.lastIndexOf(')') + 2);
                } catch (IOException e) {
                    return false; // it has ended meanwhile
                }
            });
        } catch (IOException e) {
            return false; // no Linux, or no such process
        }
    }

    /// What a JVM writes to its output when it is asked by a signal.
    private String threads() {
        var all = new StringBuilder();
        try {
            new ProcessBuilder("kill", "-QUIT", String.valueOf(process.pid())).start();
        } catch (IOException e) {
            return "not known: " + e;
        }
        for (var line = poll(DUMP); line != null; line = poll(DUMP)) {
            all.append(System.lineSeparator()).append(line);
        }
        return all.toString();
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
        try {
            Files.deleteIfExists(errors);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
