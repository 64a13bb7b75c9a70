// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.benchmarks.Tool;

import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// What a stream of bytes reaches over loopback, without messages.
public final class Iperf {
    private Iperf() {}

    public static Optional<Path> find() {
        return Tool.find("iperf3", "apt-get install iperf3");
    }

    /// GB/s (10^9) with that many streams.
    public static double rate(Path iperf, int streams, int seconds) throws Exception {
        String program = iperf.toString();
        String port = Child.freePort();
        try (var server =
                new Child(
                        List.of(program, "-s", "-B", "127.0.0.1", "-p", port, "--forceflush"),
                        Map.of())) {
            server.await("Server (listening)");
            String out =
                    Child.run(
                            List.of(
                                    program,
                                    "-c",
                                    "127.0.0.1",
                                    "-p",
                                    port,
                                    "-t",
                                    String.valueOf(seconds),
                                    "-P",
                                    String.valueOf(streams),
                                    "-l",
                                    "1M",
                                    "-f",
                                    "m"),
                            Map.of(),
                            seconds + 20);
            return Child.lastNumber(out, "([0-9.]+) Mbits/sec.*receiver") / 8e3;
        }
    }
}
