// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;

/// Mooncake's own `transfer_engine_bench` over TCP, a target that serves any number of initiators.
final class MooncakeBench implements AutoCloseable {
    private final String program;
    private final Map<String, String> environment;
    private final long memory;
    private final Child target;
    private final String segment;

    private MooncakeBench(Path program, boolean pool, long memory) throws IOException {
        this.program = program.toString();
        this.memory = memory;
        this.environment =
                Map.of("MC_TCP_ENABLE_CONNECTION_POOL", pool ? "1" : "0", "MC_FORCE_TCP", "1");
        this.target =
                new Child(
                        List.of(
                                this.program,
                                "--mode=target",
                                "--metadata_server=P2PHANDSHAKE",
                                "--protocol=tcp",
                                "--local_server_name=127.0.0.1",
                                "--buffer_size=" + memory),
                        environment);
        this.segment = target.await("listening on (127\\.0\\.0\\.1:\\d+)");
    }

    /// Empty, after one visible line, where the program is not installed.
    static Optional<MooncakeBench> start(boolean pool, long memory) throws IOException {
        Optional<Path> program = MooncakeFiles.program("transfer_engine_bench");
        return program.isPresent()
                ? Optional.of(new MooncakeBench(program.get(), pool, memory))
                : Optional.empty();
    }

    void place(Placement placement) throws IOException, InterruptedException {
        placement.serving(target.pid());
    }

    /// One run of an initiator; empty when it reports nothing.
    ///
    /// @param limit with it the initiator's processor time is measured, its start included; without
    ///   it that is 0
    Optional<Run> run(Shape shape, int seconds, Optional<LimitProgram> limit) throws Exception {
        var command = new ArrayList<String>();
        limit.ifPresent(measuring -> command.addAll(measuring.measuring()));
        command.addAll(
                List.of(
                        program,
                        "--mode=initiator",
                        "--metadata_server=P2PHANDSHAKE",
                        "--protocol=tcp",
                        "--local_server_name=127.0.0.1",
                        "--segment_id=" + segment,
                        "--operation=" + shape.operation().name().toLowerCase(Locale.ROOT),
                        "--block_size=" + shape.block(),
                        "--batch_size=" + shape.batch(),
                        "--threads=" + shape.threads(),
                        "--duration=" + seconds,
                        "--report_precision=4",
                        "--buffer_size=" + memory));
        long before = target.cpuNanos();
        var out = Child.run(command, environment, seconds + 60);
        double rate = Child.lastNumber(out, "throughput ([0-9.]+) GB/s");
        if (rate == 0) {
            return Optional.empty();
        }
        return Optional.of(
                new Run(
                        rate * 1e9 * seconds,
                        seconds * 1_000_000_000L,
                        target.cpuNanos() - before + LimitProgram.cpuNanos(out)));
    }

    @Override
    public void close() {
        target.close();
    }
}
