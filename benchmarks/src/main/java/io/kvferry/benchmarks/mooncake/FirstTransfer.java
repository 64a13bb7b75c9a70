// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.EngineOutcome;
import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.EngineRequest.Operation;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.RegisteredMemory;
import io.kvferry.benchmarks.ChildJvm;
import io.kvferry.benchmarks.ProcessCost;
import io.kvferry.benchmarks.Table;
import io.kvferry.spi.Deadline;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.ToDoubleFunction;

/// The first transfers of a transfer engine in a new JVM, step by step: start, handshake,
/// connection or mapping, the first copy of few bytes and of many, and each again.
public final class FirstTransfer {
    private static final Duration PATIENCE = Duration.ofMinutes(5);
    private static final long SMALL = 4096;
    private static final long LARGE = 64 << 20;

    private final Map<String, String> settings;
    private final String segment;
    private final long address;

    private FirstTransfer(Map<String, String> settings, String segment, long address) {
        this.settings = settings;
        this.segment = segment;
        this.address = address;
    }

    /// One step, in the order in which a process takes them.
    private enum Step {
        START("start of the engine"),
        ALLOCATE("64 MiB of memory, written once"),
        OPEN("handshake"),
        SMALL_FIRST("4 KiB WRITE, the first: connection or mapping"),
        SMALL_AGAIN("4 KiB WRITE, the second"),
        LARGE_FIRST("64 MiB WRITE, the first"),
        LARGE_AGAIN("64 MiB WRITE, the second"),
        CLOSE("close");

        private final String text;

        Step(String text) {
            this.text = text;
        }
    }

    private record Spent(long nanos, ProcessCost cost) {
        String line() {
            return nanos + " " + cost.line();
        }

        static Spent of(String line) {
            var words = line.split(" ");
            return new Spent(Long.parseLong(words[0]), ProcessCost.of(words[1]));
        }
    }

    /// The child: `segment address key=value...`; each line of its input has it take a step.
    public static void main(String[] args) throws IOException {
        var settings = new HashMap<String, String>();
        for (String arg : List.of(args).subList(2, args.length)) {
            settings.put(arg.substring(0, arg.indexOf('=')), arg.substring(arg.indexOf('=') + 1));
        }
        new FirstTransfer(settings, args[0], Long.parseLong(args[1])).serve();
    }

    private void serve() throws IOException {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ProcessCost.now().since(ProcessCost.now()).line(); // its classes are no step's
        ChildJvm.ready();
        Optional<JavaTransferEngine> engine = Optional.empty();
        Optional<RegisteredMemory> memory = Optional.empty();
        for (var line = lines.readLine(); line != null; line = lines.readLine()) {
            var before = ProcessCost.now();
            long began = System.nanoTime();
            switch (Step.valueOf(line)) {
                case START ->
                        engine = Optional.of(JavaTransferEngine.start(EngineConfig.from(settings)));
                case ALLOCATE -> {
                    memory = Optional.of(engine.orElseThrow().allocate(LARGE));
                    memory.get().memory().fill((byte) 1);
                }
                case OPEN -> engine.orElseThrow().open(segment, Deadline.in(PATIENCE));
                case SMALL_FIRST, SMALL_AGAIN ->
                        write(engine.orElseThrow(), memory.orElseThrow(), SMALL);
                case LARGE_FIRST, LARGE_AGAIN ->
                        write(engine.orElseThrow(), memory.orElseThrow(), LARGE);
                case CLOSE -> engine.orElseThrow().close();
            }
            long took = System.nanoTime() - began;
            System.out.println(new Spent(took, ProcessCost.now().since(before)).line());
        }
    }

    private void write(JavaTransferEngine engine, RegisteredMemory memory, long bytes) {
        var outcome =
                engine.transfer(
                        new EngineRequest(
                                Operation.WRITE,
                                segment,
                                Ranges.of(memory.address(), address, bytes),
                                Deadline.in(PATIENCE),
                                "",
                                0,
                                0,
                                Optional.empty()));
        if (outcome instanceof EngineOutcome.Failed failed) {
            throw failed.failure().toException();
        }
    }

    /// Prints the medians of `count` new JVMs for each way.
    public static void print(int count) throws IOException {
        for (var setting : List.of("shared-memory=true", "shared-memory=false")) {
            var byStep = new ArrayList<List<Spent>>();
            for (var _ : Step.values()) {
                byStep.add(new ArrayList<>());
            }
            try (var target = new Target(LARGE, false, setting)) {
                for (int i = 0; i < count; i++) {
                    steps(target, setting, byStep);
                }
            }
            var table =
                    new Table(
                            setting.equals("shared-memory=true") ? "shared memory" : "TCP",
                            "ms",
                            "CPU ms",
                            "of it compiling",
                            "classes",
                            "faults");
            for (var step : Step.values()) {
                var all = byStep.get(step.ordinal());
                table.row(
                        step.text,
                        median(all, spent -> spent.nanos() / 1e6),
                        median(all, spent -> spent.cost().cpuNanos() / 1e6),
                        Math.round(median(all, spent -> spent.cost().compileMillis())),
                        Math.round(median(all, spent -> spent.cost().classes())),
                        Math.round(median(all, spent -> spent.cost().faults())));
            }
            table.print();
        }
    }

    private static void steps(Target target, String setting, List<List<Spent>> byStep)
            throws IOException {
        try (var child =
                new ChildJvm(
                        FirstTransfer.class,
                        List.of("-Xmx256m"),
                        List.of(target.segmentName, String.valueOf(target.address), setting),
                        PATIENCE)) {
            child.awaitReady();
            for (var step : Step.values()) {
                byStep.get(step.ordinal()).add(Spent.of(child.await(child.ask(step.name()))));
            }
        }
    }

    private static double median(List<Spent> all, ToDoubleFunction<Spent> quantity) {
        return all.stream().mapToDouble(quantity).sorted().toArray()[all.size() / 2];
    }
}
