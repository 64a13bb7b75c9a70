// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.RegisteredMemory;
import io.kvferry.benchmarks.ChildJvm;
import io.kvferry.benchmarks.ProcessCost;
import io.kvferry.toolkit.memory.HostPages;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.foreign.Arena;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/// The other side, in a JVM of its own: an engine with registered memory, which tells what it has
/// cost.
final class Target implements AutoCloseable {
    private static final Duration PATIENCE = Duration.ofMinutes(5);
    private static final String WHERE = "where";
    private static final String CPU = "cpu";
    private static final String COST = "cost";

    private final ChildJvm child;
    final String segmentName;
    final long address;

    /// The child: `bytes registered key=value...`.
    public static void main(String[] args) throws IOException {
        Map<String, String> settings = new HashMap<>();
        for (String arg : List.of(args).subList(2, args.length)) {
            settings.put(arg.substring(0, arg.indexOf('=')), arg.substring(arg.indexOf('=') + 1));
        }
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (var arena = Arena.ofShared();
                var engine = JavaTransferEngine.start(EngineConfig.from(settings))) {
            long bytes = Long.parseLong(args[0]);
            RegisteredMemory memory =
                    Boolean.parseBoolean(args[1])
                            ? engine.register(HostPages.allocate(bytes, arena))
                            : engine.allocate(bytes);
            memory.memory().fill((byte) 1);
            ChildJvm.ready();
            for (var line = lines.readLine(); line != null; line = lines.readLine()) {
                System.out.println(
                        switch (line) {
                            case CPU -> ProcessCost.cpuSoFar();
                            case COST -> ProcessCost.now().line();
                            default -> engine.info().segmentName() + " " + memory.address();
                        });
            }
        }
    }

    /// @param registered whether the memory is the process's own, not the engine's
    Target(long bytes, boolean registered, String... settings) throws IOException {
        var args = new ArrayList<>(List.of(String.valueOf(bytes), String.valueOf(registered)));
        args.addAll(List.of(settings));
        child =
                new ChildJvm(
                        Target.class,
                        List.of("-XX:+UseSerialGC", "-XX:MaxDirectMemorySize=4g"),
                        args,
                        PATIENCE);
        child.awaitReady();
        String[] words = child.await(child.ask(WHERE)).split(" ");
        segmentName = words[0];
        address = Long.parseLong(words[1]);
    }

    long pid() {
        return child.pid();
    }

    /// Processor time that it has taken so far.
    long cpuNanos() {
        return Long.parseLong(child.await(child.ask(CPU)));
    }

    ProcessCost cost() {
        return ProcessCost.of(child.await(child.ask(COST)));
    }

    @Override
    public void close() {
        child.close();
    }
}
