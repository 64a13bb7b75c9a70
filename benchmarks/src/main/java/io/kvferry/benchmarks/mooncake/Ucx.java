// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.benchmarks.Tool;

import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// `ucx_perftest -t tag_bw` over TCP.
final class Ucx {
    private static final Map<String, String> TCP =
            Map.of("UCX_TLS", "tcp", "UCX_NET_DEVICES", "lo", "UCX_WARN_UNUSED_ENV_VARS", "n");

    /// Until the server listens its clients fail at once; this many processes outlast its start.
    private static final int ATTEMPTS = 200;

    private Ucx() {}

    static Optional<Path> find() {
        return Tool.find("ucx_perftest", "apt-get install ucx-utils");
    }

    /// GB/s (10^9) with blocks of that size.
    static double rate(Path perf, int block, long bytes) throws Exception {
        String program = perf.toString();
        String port = Child.freePort();
        // Serves one client, and says nothing before.
        try (var _ = new Child(List.of(program, "-p", port), TCP)) {
            String out = "";
            for (int i = 0; i < ATTEMPTS && !out.contains("Final:"); i++) {
                out =
                        Child.run(
                                List.of(
                                        program,
                                        "127.0.0.1",
                                        "-p",
                                        port,
                                        "-t",
                                        "tag_bw",
                                        "-s",
                                        String.valueOf(block),
                                        "-n",
                                        String.valueOf(Math.max(50, bytes / block)),
                                        "-w",
                                        "20"),
                                TCP,
                                60);
            }
            // MB (of 2^20) per second: the average before the overall one.
            return Child.lastNumber(out, "Final:.*\\s([0-9.]+)\\s+[0-9.]+\\s+[0-9.]+\\s")
                    * 1.048576e-3;
        }
    }
}
