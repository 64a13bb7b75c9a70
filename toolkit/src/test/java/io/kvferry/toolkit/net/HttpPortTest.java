// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import static java.nio.charset.StandardCharsets.US_ASCII;

import com.sun.net.httpserver.HttpServer;

import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;

class HttpPortTest {
    private static final Duration SELDOM = Duration.ofHours(1);
    private static final Duration OFTEN = Duration.ofMillis(100);

    private static HttpPort start(int number, Duration look) throws IOException {
        return HttpPort.start(
                "deaf",
                new InetSocketAddress(InetAddress.getLoopbackAddress(), number),
                Duration.ofSeconds(5),
                16,
                exchange -> {
                    exchange.sendResponseHeaders(200, -1);
                    exchange.close();
                },
                look);
    }

    /// Nobody serves the port any more.
    @Test
    void aServerThatDoesNotAnswerIsStartedAgainOnItsPort() throws Exception {
        try (var port = start(0, OFTEN)) {
            awaitServed(port);
            stopServer(port);
            awaitServed(port);
        }
    }

    /// The socket is open and takes connections, but the one thread that serves it is gone.
    @Test
    void aServerWhoseThreadHasEndedIsStartedAgainOnItsPort() throws Exception {
        Assumptions.assumeTrue(SocketCalls.available(), "needs system calls of Linux");
        try (var port = start(0, OFTEN)) {
            awaitServed(port);
            endThread(port);
            awaitServed(port);
        }
    }

    @Test
    void aPortWhoseThreadHasEndedIsFreeAfterItsClose() throws Exception {
        Assumptions.assumeTrue(SocketCalls.available(), "needs system calls of Linux");
        var port = start(0, SELDOM);
        try {
            endThread(port);
        } finally {
            port.close();
        }
        listen(port.address()).close();
    }

    @Test
    void aPortThatWasNotStartedIsFree() throws Exception {
        Assumptions.assumeTrue(SocketCalls.available(), "needs system calls of Linux");
        InetSocketAddress address;
        try (var free = listen(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0))) {
            address = (InetSocketAddress) free.getLocalAddress();
        }
        assertThatThrownBy(() -> start(address.getPort(), Duration.ZERO))
                .isInstanceOf(IllegalArgumentException.class);
        listen(address).close();
    }

    /// Another listener of this process had got the port, and was ended in place of the dead one.
    @Test
    void whoeverHasThePortInTheMeantimeKeepsIt() throws Exception {
        try (var port = start(0, OFTEN)) {
            awaitServed(port);
            try (var other = take(port)) {
                var trouble = "";
                var limit = Deadline.in(Duration.ofSeconds(40));
                while (!trouble.contains("BindException") && !limit.passed()) {
                    trouble = port.trouble().orElse("");
                }
                assertThat(trouble).contains("BindException");
                assertAccepts(other, port.address());
            }
            awaitServed(port);
        }
    }

    @Test
    @SuppressWarnings("try") // it is closed early
    void whoeverHasThePortAtItsCloseKeepsIt() throws Exception {
        try (var port = start(0, SELDOM);
                var other = take(port)) {
            port.close();
            assertAccepts(other, port.address());
        }
    }

    /// The JDK's server leaves its socket open when it cannot bind it, and a port that is dead
    /// tries again and again.
    @Test
    void aStartOnATakenPortLeavesNoDescriptorOpen() throws Exception {
        var descriptors = Path.of("/proc/self/fd");
        Assumptions.assumeTrue(Files.isDirectory(descriptors), "needs /proc");
        int tries = 50;
        try (var other = listen(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0))) {
            int taken = other.socket().getLocalPort();
            int before = descriptors.toFile().list().length;
            for (int i = 0; i < tries; i++) {
                assertThatThrownBy(() -> start(taken, SELDOM)).isInstanceOf(BindException.class);
            }
            assertThat(descriptors.toFile().list().length).isLessThan(before + tries);
        }
    }

    private static void stopServer(HttpPort port) throws ReflectiveOperationException {
        var inner = HttpPort.class.getDeclaredField("server");
        inner.setAccessible(true);
        ((HttpServer) inner.get(port)).stop(0);
    }

    /// Stops the server and has its port before the server is started again.
    private static ServerSocketChannel take(HttpPort port) throws Exception {
        for (var limit = Deadline.in(Duration.ofSeconds(40)); !limit.passed(); ) {
            stopServer(port);
            try {
                return listen(port.address());
            } catch (BindException _) {
                Thread.onSpinWait();
            }
        }
        throw new AssertionError("the port was always faster");
    }

    private static ServerSocketChannel listen(InetSocketAddress address) throws IOException {
        var channel = ServerSocketChannel.open();
        try {
            return channel.bind(address);
        } catch (IOException e) {
            channel.close();
            throw e;
        }
    }

    private static void assertAccepts(ServerSocketChannel listener, InetSocketAddress address)
            throws IOException {
        try (var client = SocketChannel.open(address)) {
            boolean met = false;
            while (!met) { // connections of the port's watch come before
                try (var accepted = listener.accept()) {
                    met = client.getLocalAddress().equals(accepted.getRemoteAddress());
                }
            }
        }
    }

    /// Ends the thread of the JDK's server by an Error, as a full heap does: it logs what it does,
    /// and the log throws.
    private static void endThread(HttpPort port) throws Exception {
        var dispatcher =
                Thread.getAllStackTraces().keySet().stream()
                        .filter(thread -> thread.getName().equals("HTTP-Dispatcher"))
                        .max(Comparator.comparingLong(Thread::threadId))
                        .orElseThrow();
        var log = Logger.getLogger("com.sun.net.httpserver");
        var level = log.getLevel();
        var deadly = new DeadlyLog(dispatcher);
        log.addHandler(deadly);
        log.setLevel(Level.ALL);
        try (var client = new Socket()) {
            client.connect(port.address());
            client.getOutputStream().write("HEAD /alive HTTP/1.0\r\n\r\n".getBytes(US_ASCII));
            assertThat(dispatcher.join(Duration.ofSeconds(40))).isTrue();
        } finally {
            log.setLevel(level);
            log.removeHandler(deadly);
        }
    }

    private static final class DeadlyLog extends Handler {
        private final Thread victim;

        DeadlyLog(Thread victim) {
            this.victim = victim;
        }

        @Override
        public void publish(LogRecord record) {
            if (Thread.currentThread() == victim) {
                throw new OutOfMemoryError("no memory, says the test");
            }
        }

        @Override
        public void flush() {}

        @Override
        public void close() {}
    }

    /// On a busy machine the port may be taken for deaf, and started again, at any time.
    private static void awaitServed(HttpPort port) throws Exception {
        int status = 0;
        var limit = Deadline.in(Duration.ofSeconds(40));
        while (status != 200 && !limit.passed()) {
            try {
                status = status(port);
            } catch (IOException e) {
                status = -1; // not yet
            }
        }
        assertThat(status).isEqualTo(200);
    }

    private static int status(HttpPort port) throws Exception {
        var uri = URI.create("http://127.0.0.1:" + port.address().getPort() + "/x");
        var request = HttpRequest.newBuilder(uri).timeout(Duration.ofSeconds(5)).build();
        try (var client = HttpClient.newHttpClient()) {
            return client.send(request, HttpResponse.BodyHandlers.discarding()).statusCode();
        }
    }
}
