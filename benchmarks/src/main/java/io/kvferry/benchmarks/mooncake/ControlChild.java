// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.benchmarks.ChildJvm;
import io.kvferry.benchmarks.ProcessCost;
import io.kvferry.toolkit.bounded.SerialLoop;
import io.kvferry.toolkit.zmtp.SideChannel;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.channels.ServerSocketChannel;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/// The prefiller's side of [ControlBenchmark]: answers each request after a while, from the one
/// thread that owns its state, over either way.
final class ControlChild {
    static final Duration LIMIT = Duration.ofMinutes(2);
    private static final byte[] ANSWER = new byte[96];

    private final SerialLoop loop = new SerialLoop("answers");
    private final ScheduledExecutorService clock = Executors.newSingleThreadScheduledExecutor();
    private volatile long holdMicros;

    private ControlChild() {}

    /// Prints the address of the side channel and the port of the frames; then takes `hold MICROS`,
    /// and tells the processor time so far for anything else.
    public static void main(String[] args) throws IOException {
        new ControlChild().serve();
    }

    private void serve() throws IOException {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (var channel = new SideChannel("prefiller");
                var listener =
                        ServerSocketChannel.open()
                                .bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0))) {
            var address =
                    channel.listen(
                            "127.0.0.1", (asker, _) -> later(answer -> asker.answer(answer)));
            Thread.ofPlatform().daemon().start(() -> accept(listener));
            ChildJvm.ready();
            for (var line = lines.readLine(); line != null; line = lines.readLine()) {
                if (line.startsWith("hold ")) {
                    holdMicros = Long.parseLong(line.substring(5));
                    System.out.println(address + " " + listener.socket().getLocalPort());
                } else {
                    System.out.println(ProcessCost.cpuSoFar());
                }
            }
        } finally {
            clock.shutdownNow();
            loop.close();
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

    private void accept(ServerSocketChannel listener) {
        try {
            while (true) {
                var accepted = listener.accept();
                accepted.setOption(StandardSocketOptions.TCP_NODELAY, true);
                var connection = new FrameConnection(accepted);
                Thread.ofPlatform()
                        .daemon()
                        .start(() ->
                                connection.receive((exchange, _) ->
                                        later(answer -> connection.send(exchange, answer))));
            }
        } catch (IOException e) {
            if (listener.isOpen()) {
                System.err.println("no more connections: " + e);
            }
        }
    }
}
