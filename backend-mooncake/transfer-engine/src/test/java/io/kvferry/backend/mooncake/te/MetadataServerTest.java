// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static io.kvferry.tck.FreePorts.freePort;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.te.EngineOutcome.Completed;
import io.kvferry.backend.mooncake.te.internal.metadata.EtcdMetadataStore;
import io.kvferry.backend.mooncake.te.internal.metadata.HttpMetadataStore;
import io.kvferry.backend.mooncake.te.peers.EndlessAnswer;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.Cancellation;

import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;

/// Engines that find each other through a metadata server.
class MetadataServerTest {
    private static Deadline soon() {
        return Deadline.in(Duration.ofSeconds(60));
    }

    @Test
    void answersAsTheServerOfMooncakeMaster() throws Exception {
        try (var server = MetadataServer.start("127.0.0.1", 0);
                var client = HttpClient.newHttpClient()) {
            String base = server.connection();
            assertThat(ask(client, "GET", base + "?key=a%2Fb", ""))
                    .isEqualTo("404 metadata not found");
            assertThat(ask(client, "GET", base, "")).isEqualTo("400 metadata key is required");
            assertThat(ask(client, "PUT", base + "?key=a%2Fb", "{\"x\":1}"))
                    .isEqualTo("200 metadata updated");
            assertThat(ask(client, "PUT", base + "?key=a%2Fb", "{\"x\":2}"))
                    .isEqualTo("200 metadata updated");
            assertThat(ask(client, "GET", base + "?key=a%2Fb", "")).isEqualTo("200 {\"x\":2}");
            assertThat(ask(client, "DELETE", base + "?key=a%2Fb", ""))
                    .isEqualTo("200 metadata deleted");
            assertThat(ask(client, "DELETE", base + "?key=a%2Fb", ""))
                    .isEqualTo("404 metadata not found");
            String rpc = base + "?key=mooncake%2Frpc_meta%2Fn";
            assertThat(ask(client, "PUT", rpc, "{}")).isEqualTo("200 metadata updated");
            assertThat(ask(client, "PUT", rpc, "{}")).isEqualTo("200 metadata updated");
            assertThat(ask(client, "PUT", rpc, "{\"p\":1}"))
                    .isEqualTo("400 Duplicate rpc_meta key not allowed");
            assertThat(ask(client, "POST", rpc, "{}")).startsWith("405");
            assertThat(ask(client, "GET", base.replace("/metadata", "/health"), ""))
                    .startsWith("200");
        }
    }

    private static String ask(HttpClient client, String verb, String uri, String body)
            throws Exception {
        var response =
                client.send(
                        HttpRequest.newBuilder(URI.create(uri))
                                .method(verb, BodyPublishers.ofString(body))
                                .build(),
                        BodyHandlers.ofString());
        return response.statusCode() + " " + response.body();
    }

    private static JavaTransferEngine engine(String metadata, String name) {
        return JavaTransferEngine.start(
                EngineConfig.from(Map.of("metadata", metadata, "name", name, "cluster-id", "c1")));
    }

    @Test
    void anEngineThatDoesNotStartLeavesNothingOpen(@TempDir Path folder) throws Exception {
        var settings =
                Map.of(
                        "metadata",
                        "redis://127.0.0.1:1",
                        "name",
                        "node",
                        "shared-memory-dir",
                        folder.toString());
        long sockets = sockets();
        assertThatThrownBy(() -> JavaTransferEngine.start(EngineConfig.from(settings)))
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("redis is not supported");
        assertThat(folder).isEmptyDirectory();
        awaitNot(() -> sockets() > sockets, "sockets left open");
        awaitNot(
                () ->
                        Thread.getAllStackTraces().keySet().stream()
                                .anyMatch(thread ->
                                        thread.getName().equals("kvferry-te-watchdog-node")),
                "its watchdog runs on");
    }

    /// Threads end a moment after they were told to.
    private static void awaitNot(Callable<Boolean> trouble, String what) throws Exception {
        var limit = soon();
        while (trouble.call()) {
            assertThat(limit.passed()).as(what).isFalse();
            TimeUnit.MILLISECONDS.sleep(5);
        }
    }

    /// That this process has open.
    private static long sockets() throws IOException {
        var open = Path.of("/proc/self/fd");
        Assumptions.assumeTrue(Files.isDirectory(open), "needs /proc");
        long count = 0;
        try (var descriptors = Files.newDirectoryStream(open)) {
            for (var descriptor : descriptors) {
                try {
                    count +=
                            Files.readSymbolicLink(descriptor).toString().startsWith("socket")
                                    ? 1
                                    : 0;
                } catch (NoSuchFileException _) { // closed meanwhile
                    continue;
                }
            }
        }
        return count;
    }

    @Test
    void enginesFindEachOtherByNameAndSurviveARestartUnderTheSameName() {
        try (var server = MetadataServer.start("127.0.0.1", 0)) {
            exchangeThrough(server.connection());
        }
    }

    private static void exchangeThrough(String metadata) {
        try (var here = engine(metadata, "node-a")) {
            RegisteredMemory near = here.allocate(1 << 16);
            Bytes.fill(near.memory(), 1);
            for (int life = 0; life < 2; life++) {
                try (var there = engine(metadata, "node-b")) {
                    RegisteredMemory far = there.allocate(1 << 16);
                    EngineOutcome outcome =
                            here.transfer(
                                    Announced.by(
                                            new Notification("node-a", "life " + life),
                                            EngineRequest.write(
                                                    "node-b",
                                                    Ranges.of(
                                                            near.address(), far.address(), 1 << 16),
                                                    soon())));
                    assertThat(outcome).isInstanceOf(Completed.class);
                    assertThat(Bytes.mismatch(far.memory(), 0, 1 << 16, 1)).isEqualTo(-1);
                    assertThat(there.takeNotifications(9))
                            .containsExactly(new Notification("node-a", "life " + life));
                }
            }
            assertThatThrownBy(() -> here.open("node-c", soon()))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.NOT_FOUND));
        }
    }

    @Test
    void publishesDocumentsAndWithdrawsThem() throws Exception {
        try (var server = MetadataServer.start("127.0.0.1", 0);
                var store =
                        new HttpMetadataStore(URI.create(server.connection()), Optional.empty())) {
            try (var engine = engine(server.connection(), "n1")) {
                RegisteredMemory memory = engine.allocate(4096);
                Deadline limit = soon();
                Optional<String> document = Optional.empty();
                while (document.filter(text -> text.contains("\"addr\":" + memory.address()))
                                .isEmpty()
                        && !limit.passed()) {
                    document = store.get("mooncake/c1/ram/n1", limit, new Cancellation());
                }
                assertThat(document.orElseThrow())
                        .contains("\"tcp_proto_version\":2")
                        .contains("\"length\":4096");
                assertThat(store.get("mooncake/c1/rpc_meta/n1", soon(), new Cancellation()))
                        .hasValue(
                                "{\"ip_or_host_name\":\"127.0.0.1\",\"rpc_port\":"
                                        + engine.info().rpcPort()
                                        + "}");
            }
            assertThat(store.get("mooncake/c1/ram/n1", soon(), new Cancellation())).isEmpty();
            assertThat(store.get("mooncake/c1/rpc_meta/n1", soon(), new Cancellation())).isEmpty();
        }
    }

    @Test
    void saysWhatIsWrongWithTheMetadataServer() {
        assertThatThrownBy(() -> engine("http://127.0.0.1:1/metadata", "n"))
                .isInstanceOfSatisfying(
                        KvFerryException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.IO));
        assertThatThrownBy(() -> engine("redis://127.0.0.1:1", "n"))
                .hasMessageContaining("redis is not supported");
        assertThatThrownBy(() -> engine("http://127.0.0.1:1/metadata", ""))
                .hasMessageContaining("'name'");
    }

    @Test
    void answersAreBoundedInBytesAndInTime() throws IOException {
        try (var endless = new EndlessAnswer(Long.MAX_VALUE);
                var store = new HttpMetadataStore(endless.uri(), Optional.empty());
                var etcd = new EtcdMetadataStore(endless.uri())) {
            for (var ask :
                    List.<ThrowingCallable>of(
                            () -> store.get("key", soon(), new Cancellation()),
                            () -> etcd.get("key", soon(), new Cancellation()))) {
                assertThatThrownBy(ask)
                        .isInstanceOfSatisfying(
                                KvFerryException.class,
                                e -> assertThat(e.code()).isIn(ErrorCode.IO, ErrorCode.TIMEOUT));
            }
            assertThat(endless.sent()).as("taken, or in socket buffers").isLessThan(128 << 20);
        }
        try (var stalled = new EndlessAnswer(100);
                var store = new HttpMetadataStore(stalled.uri(), Optional.empty())) {
            assertThatThrownBy(() ->
                            store.get(
                                    "key", Deadline.in(Duration.ofMillis(500)), new Cancellation()))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.TIMEOUT));
        }
    }

    @Test
    void enginesFindEachOtherThroughEtcd(@TempDir Path folder) throws Exception {
        Assumptions.assumeTrue(
                etcdIsInstalled(),
                "no etcd on the PATH: apt-get install etcd-server runs this test");
        int clientPort = freePort();
        int peerPort = freePort();
        Path log = Files.createFile(folder.resolve("etcd.log"));
        Process etcd =
                new ProcessBuilder(
                                "etcd",
                                "--data-dir",
                                folder.resolve("data").toString(),
                                "--listen-client-urls",
                                "http://127.0.0.1:" + clientPort,
                                "--advertise-client-urls",
                                "http://127.0.0.1:" + clientPort,
                                "--listen-peer-urls",
                                "http://127.0.0.1:" + peerPort,
                                "--initial-advertise-peer-urls",
                                "http://127.0.0.1:" + peerPort,
                                "--initial-cluster",
                                "default=http://127.0.0.1:" + peerPort)
                        .redirectErrorStream(true)
                        .redirectOutput(log.toFile())
                        .start();
        try {
            awaitEtcd(clientPort);
            exchangeThrough("etcd://127.0.0.1:" + clientPort);
        } finally {
            etcd.destroyForcibly();
            etcd.waitFor(10, TimeUnit.SECONDS);
        }
    }

    private static void awaitEtcd(int port) {
        Deadline limit = Deadline.in(Duration.ofSeconds(30));
        try (var store = new EtcdMetadataStore(URI.create("http://127.0.0.1:" + port))) {
            while (true) {
                try {
                    assertThat(store.get("mooncake/none", limit, new Cancellation())).isEmpty();
                    return;
                } catch (KvFerryException e) {
                    if (limit.passed()) {
                        throw e;
                    }
                    Thread.onSpinWait();
                }
            }
        }
    }

    private static boolean etcdIsInstalled() throws InterruptedException {
        try {
            return new ProcessBuilder("etcd", "--version")
                            .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                            .start()
                            .waitFor()
                    == 0;
        } catch (IOException _) {
            return false;
        }
    }

    /// Peers would go on asking where it was.
    @Test
    void anEngineThatIsClosedOnAnInterruptedThreadIsWithdrawn() {
        try (var own = MetadataServer.start("127.0.0.1", 0);
                var store = new HttpMetadataStore(URI.create(own.connection()), Optional.empty())) {
            var engine =
                    JavaTransferEngine.start(
                            EngineConfig.from(
                                    Map.of(
                                            "metadata",
                                            own.connection(),
                                            "name",
                                            "gone",
                                            "shared-memory",
                                            "false")));
            var by = Deadline.in(Duration.ofSeconds(30));
            assertThat(store.get("mooncake/ram/gone", by, new Cancellation())).isPresent();
            Thread.currentThread().interrupt();
            engine.close();
            assertThat(Thread.interrupted()).as("still interrupted").isTrue();
            assertThat(store.get("mooncake/ram/gone", by, new Cancellation())).isEmpty();
            assertThat(store.get("mooncake/rpc_meta/gone", by, new Cancellation())).isEmpty();
        }
    }
}
