// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.sun.net.httpserver.HttpServer;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;

/// The reader of a cluster, against a master's admin port in a few lines and a transfer engine that
/// has the memory.
class ClusterReaderTest {
    private static final Duration LIMIT = Duration.ofSeconds(50);
    private static final String KEY = "kvferry:00@model@tp_rank:0@pp_rank:0@group:0@ab";

    private final Arena arena = Arena.ofShared();
    private final Map<String, String> entries = new TreeMap<>();
    private final AtomicInteger questions = new AtomicInteger();
    private volatile int goneAfter = Integer.MAX_VALUE;
    private final JavaTransferEngine owner = JavaTransferEngine.start(EngineConfig.from(Map.of()));
    private final MemorySegment memory = owner.allocate(1 << 20).memory();
    private final CountDownLatch stopped = new CountDownLatch(1);
    private volatile boolean stalls;
    private volatile long padding;
    private HttpServer master;
    private ClusterReader reader;

    @BeforeEach
    void start() throws IOException {
        master = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        master.createContext(
                "/",
                exchange -> {
                    String query = exchange.getRequestURI().toString();
                    String text =
                            query.equals("/get_all_keys")
                                    ? String.join("\n", entries.keySet()) + "\n"
                                    : answer(query.substring(query.indexOf("keys=") + 5));
                    exchange.sendResponseHeaders(200, 0);
                    try (var out = exchange.getResponseBody()) {
                        out.write(text.getBytes(UTF_8));
                        out.flush();
                        var blanks = " ".repeat(1 << 16).getBytes(UTF_8);
                        for (long sent = 0; sent < padding; sent += blanks.length) {
                            out.write(blanks);
                        }
                        if (stalls) {
                            stopped.await();
                        }
                    } catch (InterruptedException e) {
                        throw new IOException(e);
                    }
                });
        master.start();
        reader = new ClusterReader("http://127.0.0.1:" + master.getAddress().getPort(), LIMIT);
    }

    private String answer(String keys) {
        boolean gone = questions.incrementAndGet() > goneAfter;
        var all = new StringBuilder();
        for (String key : keys.split(",")) {
            String entry = gone ? null : entries.get(key);
            all.append(all.isEmpty() ? "" : ",")
                    .append("\"" + key + "\":")
                    .append(
                            entry == null
                                    ? "{\"ok\":false,\"error\":\"OBJECT_NOT_FOUND\",\"values\":null,"
                                            + "\"disk_values\":null,\"local_disk_values\":null}"
                                    : entry);
        }
        return "{\"success\":true,\"data\":{" + all + "}}";
    }

    @AfterEach
    void stop() {
        stopped.countDown();
        reader.close();
        master.stop(0);
        owner.close();
        arena.close();
    }

    private void entry(String key, long bytes, String disk) {
        entries.put(
                key,
                "{\"ok\":true,\"error\":null,\"values\":[{\"size_\":"
                        + bytes
                        + ",\"buffer_address_\":"
                        + memory.address()
                        + ",\"protocol_\":\"tcp\",\"transport_endpoint_\":\""
                        + owner.info().segmentName()
                        + "\"}],\"disk_values\":null,\"local_disk_values\":"
                        + disk
                        + "}");
    }

    private void put(String key, int bytes) {
        for (int i = 0; i < bytes; i++) {
            memory.set(ValueLayout.JAVA_BYTE, i, (byte) (i * 7));
        }
        ValueTrailer.write(memory, bytes, ValueTrailer.checksum(key, memory, bytes));
        entry(key, bytes + ValueTrailer.BYTES, "null");
    }

    private MemorySegment read(String key) {
        return reader.read(key, bytes -> arena.allocate(bytes, 64));
    }

    @Test
    void listsAndFinds() {
        entry("b/1", 100, "null");
        entry("b/2", 200, "[{}]");
        entry("c with a blank", 300, "null");
        assertThat(reader.list("b/", 10))
                .containsExactly(
                        new ClusterReader.Found("b/1", 100, 1, false),
                        new ClusterReader.Found("b/2", 200, 1, true));
        assertThat(reader.list("", 1)).hasSize(1);
        assertThat(reader.find("b/2").orElseThrow().tiers()).isEqualTo("memory+disk");
        assertThat(reader.find("b/3")).isEmpty();
        assertThatThrownBy(() -> reader.find("a,b"))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.UNSUPPORTED));
    }

    @Test
    void readsWhereTheMasterSaysAndChecksWhatIsOurs() {
        put(KEY, 5000);
        var value = read(KEY);
        assertThat(value.byteSize()).isEqualTo(5000);
        assertThat(value.mismatch(memory.asSlice(0, 5000))).isEqualTo(-1);
        memory.set(ValueLayout.JAVA_BYTE, 77, (byte) 1);
        assertThatThrownBy(() -> read(KEY))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.CORRUPT));
        entry("of-another", 600, "null");
        assertThat(read("of-another").byteSize()).isEqualTo(600);
    }

    /// There is no lease: what is evicted during the read is no result.
    @Test
    void whatWasEvictedMeanwhileIsAMiss() {
        put(KEY, 5000);
        goneAfter = 1;
        assertThatThrownBy(() -> read(KEY))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.MISS));
    }

    private static void assertFails(ThrowingCallable call, ErrorCode code) {
        assertThatThrownBy(call)
                .isInstanceOfSatisfying(
                        KvFerryException.class, e -> assertThat(e.code()).isEqualTo(code));
    }

    /// Keys that came before are no list: the rest of them would be missing unsaid.
    @Test
    void aMasterThatStallsInTheBodyIsATimeout() {
        entry("b/1", 100, "null");
        stalls = true;
        String address = "http://127.0.0.1:" + master.getAddress().getPort();
        try (var hasty = new ClusterReader(address, Duration.ofSeconds(1))) {
            assertFails(() -> hasty.list("b/", 10), ErrorCode.TIMEOUT);
        }
    }

    @Test
    void aMasterThatStallsInAnAnswerIsATimeout() {
        stalls = true;
        String address = "http://127.0.0.1:" + master.getAddress().getPort();
        try (var hasty = new ClusterReader(address, Duration.ofSeconds(1))) {
            assertFails(() -> hasty.find("b/1"), ErrorCode.TIMEOUT);
        }
    }

    @Test
    void anAnswerWithoutEndIsAnError() {
        entry("b/1", 100, "null");
        padding = 2 * ClusterReader.MOST_ANSWER_BYTES;
        assertFails(() -> reader.find("b/1"), ErrorCode.IO);
        assertFails(() -> reader.list("b/", 10), ErrorCode.IO);
    }

    @Test
    void aMasterThatIsAwayIsSaidSo() {
        master.stop(0);
        assertThatThrownBy(() -> reader.find(KEY))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.PEER_LOST));
    }
}
