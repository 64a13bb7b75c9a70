// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.decode;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapClient;
import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapServer;
import io.kvferry.backend.mooncake.p2p.bootstrap.WorkerRegistration;
import io.kvferry.backend.mooncake.p2p.decode.EngineDirectory.Answer;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.Failure;
import io.kvferry.tck.FreePorts;
import io.kvferry.toolkit.bounded.SerialLoop;

import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/// What a decoder knows of prefillers.
class EngineDirectoryTest {
    private static final String FIRST = "tcp://127.0.0.1:1001";
    private static final String SECOND = "tcp://127.0.0.1:1002";

    private final BlockingQueue<Answer> answers = new LinkedBlockingQueue<>();

    private static BootstrapServer serving(int port, String worker) throws InterruptedException {
        var server = BootstrapServer.start("127.0.0.1", port);
        try (var client = new BootstrapClient(TestEngine.SOON)) {
            client.register(
                    URI.create("http://127.0.0.1:" + server.port()),
                    new WorkerRegistration("p", 0, 0, 0, worker, Optional.empty()));
        }
        return server;
    }

    /// The side channel address of the only worker of the engine.
    private String find(SerialLoop loop, EngineDirectory directory, int port)
            throws InterruptedException {
        var key = new EngineDirectory.Key("http://127.0.0.1:" + port, "p");
        loop.post(() -> directory.find(key, answers::add));
        var answer = answers.poll(TestEngine.SOON.toSeconds(), TimeUnit.SECONDS);
        assertThat(answer).isInstanceOf(Answer.Found.class);
        var workers = ((Answer.Found) answer).engine().workers().values();
        assertThat(workers).hasSize(1);
        return workers.iterator().next();
    }

    @Test
    void anEngineToWhichNoConnectionIsLeftIsLookedUpAnew() throws Exception {
        try (var loop = new SerialLoop("loop");
                var directory = new EngineDirectory(loop, TestEngine.SOON, Optional.empty())) {
            int port = FreePorts.freePort();
            try (var server = serving(port, FIRST)) {
                assertThat(find(loop, directory, server.port())).isEqualTo(FIRST);
            }
            loop.post(() -> directory.forgetWorker(FIRST));
            assertThat(find(loop, directory, port))
                    .as("while the bootstrap service does not answer")
                    .isEqualTo(FIRST);
            try (var server = serving(port, FIRST)) {
                assertThat(find(loop, directory, server.port())).isEqualTo(FIRST);
            }
            try (var successor = serving(port, SECOND)) {
                assertThat(find(loop, directory, successor.port()))
                        .as("while a connection stands")
                        .isEqualTo(FIRST);
                loop.post(() -> directory.forgetWorker("tcp://127.0.0.1:1003"));
                assertThat(find(loop, directory, port)).as("of another").isEqualTo(FIRST);
                loop.post(() -> directory.forgetWorker(FIRST));
                assertThat(find(loop, directory, port)).isEqualTo(SECOND);
            }
        }
    }

    /// One connection was lost, which says little about the engine.
    @Test
    void anEngineThatWasForgottenIsUsedWhileTheBootstrapServiceDoesNotAnswer() throws Exception {
        try (var loop = new SerialLoop("loop");
                var directory = new EngineDirectory(loop, TestEngine.SOON, Optional.empty())) {
            int port = FreePorts.freePort();
            var key = new EngineDirectory.Key("http://127.0.0.1:" + port, "p");
            try (var server = serving(port, FIRST)) {
                assertThat(find(loop, directory, server.port())).isEqualTo(FIRST);
            }
            loop.post(() -> directory.forget(key));
            assertThat(find(loop, directory, port)).isEqualTo(FIRST);
            try (var successor = serving(port, SECOND)) {
                assertThat(find(loop, directory, successor.port())).isEqualTo(SECOND);
            }
        }
    }

    @Test
    void anEngineThatRefusesIsLookedUpAgainAndUsedMeanwhile() throws Exception {
        try (var loop = new SerialLoop("loop");
                var directory = new EngineDirectory(loop, TestEngine.SOON, Optional.empty())) {
            int port = FreePorts.freePort();
            var key = new EngineDirectory.Key("http://127.0.0.1:" + port, "p");
            try (var server = serving(port, FIRST)) {
                assertThat(find(loop, directory, server.port())).isEqualTo(FIRST);
            }
            loop.post(() -> directory.review(key));
            assertThat(find(loop, directory, port))
                    .as("while the bootstrap service does not answer")
                    .isEqualTo(FIRST);
            try (var successor = serving(port, SECOND)) {
                var limit = Deadline.in(TestEngine.SOON);
                while (!find(loop, directory, successor.port()).equals(SECOND)) {
                    loop.post(() -> directory.review(key));
                    assertThat(limit.passed()).as("not looked up again").isFalse();
                    Thread.sleep(20);
                }
            }
        }
    }

    /// A router names as many engines as it likes.
    @Test
    void soManyEnginesAreKeptAndTheOthersAskedForAgain() throws Exception {
        var asked = new AtomicInteger();
        ThreadFactory threads =
                work -> {
                    asked.incrementAndGet();
                    return Thread.ofVirtual().unstarted(work);
                };
        var firstServer = serving(FreePorts.freePort(), FIRST);
        var secondServer = serving(FreePorts.freePort(), SECOND);
        try (var loop = new SerialLoop("loop");
                var directory =
                        new EngineDirectory(
                                loop::post, TestEngine.SOON, Optional.empty(), threads, 1);
                firstServer;
                secondServer) {
            for (var server : List.of(firstServer, secondServer, secondServer, firstServer)) {
                var key = new EngineDirectory.Key("http://127.0.0.1:" + server.port(), "p");
                find(loop, directory, server.port());
                var verdict = new CompletableFuture<Optional<Failure>>();
                loop.post(() ->
                        directory.find(
                                key,
                                answer ->
                                        directory.confirm(
                                                key,
                                                ((Answer.Found) answer).engine(),
                                                verdict::complete)));
                assertThat(verdict.get(TestEngine.SOON.toSeconds(), TimeUnit.SECONDS)).isEmpty();
            }
            assertThat(asked).as("two for each that was not the last one").hasValue(6);
        }
    }

    /// Requests name the services, and as many engines of each as they like, in several spellings.
    @Test
    void servicesThatDoNotAnswerHaveFewCallsEachAndHoldUpNoOther() throws Exception {
        int services = 20;
        var connections = new LinkedBlockingQueue<Socket>();
        var silent = new ArrayList<ServerSocket>();
        try (var server = serving(FreePorts.freePort(), FIRST);
                var loop = new SerialLoop("loop");
                var directory = new EngineDirectory(loop, TestEngine.SOON, Optional.empty())) {
            for (int service = 0; service < services; service++) {
                var socket = new ServerSocket(0, 64, InetAddress.getLoopbackAddress());
                silent.add(socket);
                Thread.ofVirtual().start(() -> accept(socket, connections));
                for (int i = 0; i < 20; i++) {
                    var key =
                            new EngineDirectory.Key(
                                    "http://u" + i + "@127.0.0.1:" + socket.getLocalPort(), "p");
                    loop.post(() -> directory.find(key, _ -> {}));
                }
            }
            var limit = Deadline.in(TestEngine.SOON);
            while (connections.size() < 4 * services) {
                assertThat(limit.passed()).as("calls of the services").isFalse();
                Thread.sleep(10);
            }
            assertThat(find(loop, directory, server.port())).isEqualTo(FIRST);
            assertThat(connections).hasSize(4 * services);
        } finally {
            for (var each : connections) {
                each.close();
            }
            for (var each : silent) {
                each.close();
            }
        }
    }

    private static void accept(ServerSocket server, BlockingQueue<Socket> connections) {
        try {
            while (true) {
                connections.add(server.accept());
            }
        } catch (IOException e) {
            assertThat(server.isClosed()).as("%s", e).isTrue(); // the test is over
        }
    }

    /// Waiting loads get the failure, and the next load asks again.
    @Test
    void aLookupWithoutAThreadFailsAndIsNotTheLast() throws Exception {
        var refusals = new AtomicInteger(3);
        ThreadFactory threads =
                work -> {
                    switch (refusals.getAndDecrement()) {
                        case 3 -> throw new InternalError("of the JVM");
                        case 2 -> throw new OutOfMemoryError("unable to create native thread");
                        case 1 -> throw new RejectedExecutionException("no carrier");
                        default -> {}
                    }
                    return Thread.ofVirtual().unstarted(work);
                };
        try (var loop = new SerialLoop("loop");
                var directory =
                        new EngineDirectory(loop, TestEngine.SOON, Optional.empty(), threads);
                var server = serving(FreePorts.freePort(), FIRST)) {
            var key = new EngineDirectory.Key("http://127.0.0.1:" + server.port(), "p");
            for (int i = 0; i < 3; i++) {
                loop.post(() -> directory.find(key, answers::add));
                assertThat(answers.poll(TestEngine.SOON.toSeconds(), TimeUnit.SECONDS))
                        .isInstanceOf(Answer.NotFound.class);
            }
            assertThat(find(loop, directory, server.port())).isEqualTo(FIRST);
        }
    }

    @Test
    void aWaiterThatThrowsDoesNotSilenceTheNext() throws Exception {
        try (var loop = new SerialLoop("loop");
                var directory = new EngineDirectory(loop, TestEngine.SOON, Optional.empty());
                var server = serving(FreePorts.freePort(), FIRST)) {
            var key = new EngineDirectory.Key("http://127.0.0.1:" + server.port(), "p");
            loop.post(() -> {
                directory.find(
                        key,
                        _ -> {
                            throw new IllegalStateException("for the test");
                        });
                directory.find(key, answers::add);
            });
            assertThat(answers.poll(TestEngine.SOON.toSeconds(), TimeUnit.SECONDS))
                    .isInstanceOf(Answer.Found.class);
        }
    }

    @Test
    void anAnswerThatTheLoopDidNotTakeIsGivenAgain() throws Exception {
        var refusals = new AtomicInteger(3);
        try (var loop = new SerialLoop("loop");
                var directory =
                        new EngineDirectory(
                                work -> {
                                    if (refusals.getAndDecrement() > 0) {
                                        throw new OutOfMemoryError("for the test");
                                    }
                                    loop.post(work);
                                },
                                TestEngine.SOON,
                                Optional.empty(),
                                Thread.ofVirtual().factory(),
                                8);
                var server = serving(FreePorts.freePort(), FIRST)) {
            assertThat(find(loop, directory, server.port())).isEqualTo(FIRST);
            assertThat(refusals).hasNegativeValue();
        }
    }
}
