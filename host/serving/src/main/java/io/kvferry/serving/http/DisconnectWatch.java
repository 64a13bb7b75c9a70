// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/// Notices clients that hang up before their response has begun.
///
/// The JDK's server does not look at a connection while a handler works on it and does not hand out
/// the socket, so a client that gives up would keep its request running to the end. The kernel
/// knows better: this reads the states in `/proc/net/tcp` and `/proc/net/tcp6`. A connection that
/// is not ESTABLISHED any more, or missing in two readings in a row, is gone. Where the tables do
/// not exist (not Linux), only a failed write tells, which is what streams get.
///
/// Threading: [#watch] and [#unwatch] from any thread; one thread of its own, `kvferry-http-watch`,
/// calls [HttpCall#cancel].
final class DisconnectWatch implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(DisconnectWatch.class);
    private static final Duration PERIOD = Duration.ofMillis(200);
    private static final List<Path> TABLES =
            List.of(Path.of("/proc/net/tcp"), Path.of("/proc/net/tcp6"));
    private static final String ESTABLISHED = "01";

    private final Map<HttpCall, TcpConnection> calls = new ConcurrentHashMap<>();
    private final Set<HttpCall> missing = new HashSet<>();
    private final ScheduledExecutorService timer;

    DisconnectWatch(String name) {
        timer =
                Executors.newSingleThreadScheduledExecutor(
                        Thread.ofPlatform().name("kvferry-http-watch-" + name).daemon().factory());
        if (Files.isReadable(TABLES.getFirst())) {
            var _ =
                    timer.scheduleWithFixedDelay(
                            this::look,
                            PERIOD.toMillis(),
                            PERIOD.toMillis(),
                            TimeUnit.MILLISECONDS);
        }
    }

    void watch(HttpCall call) {
        calls.put(call, call.connection());
    }

    void unwatch(HttpCall call) {
        calls.remove(call);
    }

    private void look() {
        if (calls.isEmpty()) {
            return;
        }
        try {
            var states = readTables();
            calls.forEach((call, connection) -> judge(call, states.get(connection)));
            missing.retainAll(calls.keySet());
        } catch (IOException | RuntimeException e) {
            LOG.warn(
                    "cannot read the connection table; clients that hang up are noticed late: {}",
                    e.toString());
        }
    }

    private void judge(HttpCall call, @org.jspecify.annotations.Nullable String state) {
        if (ESTABLISHED.equals(state)) {
            missing.remove(call);
        } else if (state != null || !missing.add(call)) {
            calls.remove(call);
            call.cancel();
        }
    }

    private static Map<TcpConnection, String> readTables() throws IOException {
        var states = new HashMap<TcpConnection, String>();
        for (var table : TABLES) {
            if (Files.isReadable(table)) {
                try (var lines = Files.lines(table)) {
                    lines.skip(1).forEach(line -> readLine(line, states));
                }
            }
        }
        return states;
    }

    /// ` sl local_address rem_address st ...`, addresses as hexadecimal words in host byte order,
    /// then `:port`.
    private static void readLine(String line, Map<TcpConnection, String> states) {
        var fields = line.strip().split("\\s+", 5);
        if (fields.length < 5) {
            return;
        }
        int localPort = port(fields[1]);
        int remotePort = port(fields[2]);
        states.put(new TcpConnection(localPort, address(fields[2]), remotePort), fields[3]);
    }

    private static int port(String field) {
        return Integer.parseInt(field, field.indexOf(':') + 1, field.length(), 16);
    }

    private static InetAddress address(String field) {
        var words = HexFormat.of().parseHex(field.substring(0, field.indexOf(':')));
        var bytes = new byte[words.length];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = words[i / 4 * 4 + 3 - i % 4];
        }
        try {
            return InetAddress.getByAddress(bytes);
        } catch (UnknownHostException e) {
            throw new IllegalStateException(
                    "address of " + bytes.length + " bytes in the connection table", e);
        }
    }

    @Override
    public void close() {
        timer.shutdownNow();
    }
}
