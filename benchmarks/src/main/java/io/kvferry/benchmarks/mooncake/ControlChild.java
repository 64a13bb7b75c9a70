// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.benchmarks.ChildJvm;
import io.kvferry.benchmarks.ProcessCost;
import io.kvferry.toolkit.bounded.SerialLoop;
import io.kvferry.toolkit.zmtp.SideChannel;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/// The prefiller's side of [ControlBenchmark]: answers each request after a while, from the one
/// thread that owns its state, over either kind of connection.
final class ControlChild {
    static final Duration LIMIT = Duration.ofMinutes(2);
    private static final byte[] ANSWER = new byte[96];

    private final SerialLoop loop = new SerialLoop("answers");
    private final ScheduledExecutorService clock = Executors.newSingleThreadScheduledExecutor();
    private volatile long holdMicros;

    private ControlChild() {}

    /// Takes `hold MICROS`, and answers with the address of the side channel; tells the processor
    /// time so far for anything else.
    public static void main(String[] args) throws IOException {
        new ControlChild().serve();
    }

    private void serve() throws IOException {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (var channel = new SideChannel("prefiller")) {
            var address = channel.listen("127.0.0.1", new Port());
            ChildJvm.ready();
            for (var line = lines.readLine(); line != null; line = lines.readLine()) {
                if (line.startsWith("hold ")) {
                    holdMicros = Long.parseLong(line.substring(5));
                    System.out.println(address);
                } else {
                    System.out.println(ProcessCost.cpuSoFar());
                }
            }
        } finally {
            clock.shutdownNow();
            loop.close();
        }
    }

    private final class Port implements SideChannel.Requests {
        @Override
        public void onRequest(SideChannel.Asker asker, byte[] message) {
            later(asker::last);
        }

        @Override
        public boolean shares() {
            return true;
        }
    }

    private void later(Consumer<byte[]> answer) {
        loop.post(() -> {
            long micros = holdMicros;
            if (micros == 0) {
                answer.accept(ANSWER);
            } else {
                var _ =
                        clock.schedule(
                                () -> loop.post(() -> answer.accept(ANSWER)),
                                micros,
                                TimeUnit.MICROSECONDS);
            }
        });
    }
}
