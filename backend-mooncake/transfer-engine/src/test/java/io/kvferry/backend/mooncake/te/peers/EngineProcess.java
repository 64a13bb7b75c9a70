// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.peers;

import io.kvferry.backend.mooncake.te.Bytes;
import io.kvferry.backend.mooncake.te.CrossMemorySupport;
import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.EngineOutcome.Completed;
import io.kvferry.backend.mooncake.te.EngineOutcome.Failed;
import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.RegisteredMemory;
import io.kvferry.backend.mooncake.te.WriteGrant;
import io.kvferry.spi.Deadline;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/// An engine with some memory in a JVM of its own, to be told what to do and to be killed.
public final class EngineProcess implements AutoCloseable {
    private static final Duration LIMIT = Duration.ofSeconds(30);

    private final Process process;
    private final BlockingQueue<String> said = new LinkedBlockingQueue<>();
    public final String segmentName;
    public final long address;

    /// The child: has memory, says where, and obeys lines until the end of its input. Beside the
    /// engine's settings it takes `bytes` and `registered`: whether the memory is its own.
    public static void main(String[] settings) throws IOException {
        Map<String, String> map =
                new HashMap<>(Map.of("bytes", "268435456", "registered", "false"));
        for (String setting : settings) {
            map.put(
                    setting.substring(0, setting.indexOf('=')),
                    setting.substring(setting.indexOf('=') + 1));
        }
        long bytes = Long.parseLong(map.remove("bytes"));
        boolean registered = Boolean.parseBoolean(map.remove("registered"));
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (var arena = Arena.ofShared();
                var engine = JavaTransferEngine.start(EngineConfig.from(map))) {
            RegisteredMemory memory =
                    registered
                            ? engine.register(arena.allocate(bytes, 4096))
                            : engine.allocate(bytes);
            System.out.println(engine.info().segmentName() + " " + memory.address());
            var child = new Child(engine, memory);
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                System.out.println(child.obey(line.split(" ")));
            }
        }
    }

    /// What the child does when told.
    private static final class Child {
        private final JavaTransferEngine engine;
        private final RegisteredMemory memory;
        private final MemorySegment bytes;
        private final List<WriteGrant> grants = new ArrayList<>();

        Child(JavaTransferEngine engine, RegisteredMemory memory) {
            this.engine = engine;
            this.memory = memory;
            this.bytes = memory.memory();
        }

        String obey(String[] word) {
            return switch (word[0]) {
                case "fill" -> {
                    Bytes.fill(bytes, Integer.parseInt(word[1]));
                    yield "filled";
                }
                case "mismatch" ->
                        String.valueOf(
                                Bytes.mismatch(
                                        bytes, 0, bytes.byteSize(), Integer.parseInt(word[1])));
                case "grant" -> {
                    grants.add(engine.grant(memory.address(), memory.bytes()));
                    yield String.valueOf(grants.getLast().token());
                }
                case "revoke" -> {
                    grants.forEach(WriteGrant::close);
                    yield "revoked";
                }
                case "permitted" ->
                        String.valueOf(
                                CrossMemorySupport.permitted(
                                        Long.parseLong(word[1]), Long.parseLong(word[2])));
                case "write" -> write(word);
                case "hammer" -> {
                    String first = write(word);
                    Thread.ofPlatform().daemon().start(() -> hammer(word, first));
                    yield first;
                }
                default -> throw new IllegalArgumentException(word[0]);
            };
        }

        /// `write SEGMENT ADDRESS BYTES`: the way it took, or the code of the failure.
        private String write(String[] word) {
            var ranges =
                    Ranges.of(memory.address(), Long.parseLong(word[2]), Long.parseLong(word[3]));
            return switch (engine.transfer(
                    EngineRequest.write(word[1], ranges, Deadline.in(LIMIT)))) {
                case Completed(_, _, String path) -> path;
                case Failed(var failure, _) -> failure.code().name();
            };
        }

        /// Again and again until it ends otherwise than the first time.
        private void hammer(String[] word, String first) {
            String last = first;
            while (last.equals(first)) {
                last = write(word);
            }
            System.out.println(last);
        }
    }

    // The parent's end.

    public EngineProcess(String... settings) throws IOException {
        this(List.of(), settings);
    }

    /// @param under a program that starts the child with other rights
    /// @param settings of the engine; options of the JVM begin with a dash
    public EngineProcess(List<String> under, String... settings) throws IOException {
        var command = new ArrayList<>(under);
        command.addAll(
                List.of(
                        ProcessHandle.current().info().command().orElse("java"),
                        "-XX:+UseSerialGC",
                        "-XX:TieredStopAtLevel=1",
                        "-XX:MaxDirectMemorySize=4g",
                        "--enable-native-access=ALL-UNNAMED"));
        Stream.of(settings).filter(setting -> setting.startsWith("-")).forEach(command::add);
        command.addAll(
                List.of(
                        "-cp",
                        System.getProperty("java.class.path"),
                        EngineProcess.class.getName()));
        Stream.of(settings).filter(setting -> !setting.startsWith("-")).forEach(command::add);
        process =
                new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.DISCARD).start();
        var out =
                new BufferedReader(
                        new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        String line = out.readLine();
        if (line == null) {
            throw new IOException("the child ended with " + process.onExit().join().exitValue());
        }
        segmentName = line.substring(0, line.indexOf(' '));
        address = Long.parseLong(line.substring(line.indexOf(' ') + 1));
        Thread.ofVirtual().start(() -> listen(out));
    }

    private void listen(BufferedReader out) {
        try {
            for (String line = out.readLine(); line != null; line = out.readLine()) {
                said.add(line);
            }
        } catch (IOException e) {
            said.add("gone: " + e);
        }
    }

    public long pid() {
        return process.pid();
    }

    /// Tells it to do something and returns its answer.
    public String ask(String command, Object... arguments) {
        try {
            process.getOutputStream()
                    .write((command.formatted(arguments) + "\n").getBytes(StandardCharsets.UTF_8));
            process.getOutputStream().flush();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return hear();
    }

    /// The next line that it says.
    public String hear() {
        try {
            String line = said.poll(60, TimeUnit.SECONDS);
            if (line != null) {
                return line;
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        throw new AssertionError("the child says nothing");
    }

    /// kill -9
    public void kill() {
        process.destroyForcibly().onExit().join();
    }

    @Override
    public void close() throws IOException {
        process.getOutputStream().close();
        try {
            if (!process.waitFor(10, TimeUnit.SECONDS)) {
                process.destroyForcibly();
            }
        } catch (InterruptedException e) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
    }
}
