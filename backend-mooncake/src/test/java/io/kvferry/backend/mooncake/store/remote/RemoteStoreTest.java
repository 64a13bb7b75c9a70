// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import static io.kvferry.tck.FreePorts.freePort;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.ReplicaDescriptor;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreContract;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedClient;
import io.kvferry.backend.mooncake.store.embedded.PutSessions.Started;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.EngineOutcome;
import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/// An owner and its users: what goes wrong between them.
class RemoteStoreTest {
    private static final int SIZE = 100_000;

    private final Arena arena = Arena.ofShared();
    private final List<AutoCloseable> open = new ArrayList<>();
    private final MemorySegment value = arena.allocate(SIZE, 64);
    private final MemorySegment back = arena.allocate(SIZE, 64);

    @TempDir Path folder;

    RemoteStoreTest() {
        for (int i = 0; i < SIZE; i++) {
            value.set(ValueLayout.JAVA_BYTE, i, (byte) (i * 31));
        }
    }

    @AfterEach
    void close() throws Exception {
        for (AutoCloseable each : open.reversed()) {
            each.close();
        }
        arena.close();
    }

    private StoreOwner owner(int port, Duration sessions) {
        var owner =
                StoreOwner.start(
                        new StoreOwner.Settings(
                                "127.0.0.1",
                                port,
                                8 << 20,
                                StoreConfig.DEFAULT.withChecksums(true),
                                sessions,
                                Optional.empty(),
                                false));
        open.add(owner);
        return owner;
    }

    private StoreOwner owner() {
        return owner(0, Duration.ofSeconds(60));
    }

    /// Of an owner that is there.
    private RemoteStore user(String address) {
        var store = userOf(address);
        await("opened", () -> store.healthCheck() == 0);
        return store;
    }

    private RemoteStore userOf(String address) {
        var store = RemoteStore.open(patient(address, Optional.empty()), StoreContract.ONE, false);
        open.add(store);
        store.register(value);
        store.register(back);
        return store;
    }

    /// With limits that do not decide on a busy machine.
    private static RemoteStoreConfig patient(String address, Optional<Path> secret) {
        return new RemoteStoreConfig(
                address,
                Optional.empty(),
                secret,
                false,
                Duration.ofSeconds(50),
                Duration.ofSeconds(50));
    }

    private int put(RemoteStore store, String key) {
        var results = new int[1];
        store.put(new StoreBatch().add(key).buffer(value), PutOptions.DEFAULT, results);
        return results[0];
    }

    private long get(RemoteStore store, String key) {
        back.fill((byte) 0);
        var results = new long[1];
        store.get(new StoreBatch().add(key).buffer(back), results);
        return results[0];
    }

    private static void await(String what, BooleanSupplier condition) {
        var limit = Deadline.in(Duration.ofSeconds(50));
        while (!condition.getAsBoolean()) {
            assertThat(limit.passed()).as(what).isFalse();
            LockSupport.parkNanos(5_000_000);
        }
    }

    @Test
    void whatAnInterruptedThreadAsksIsDoneAllTheSame() {
        var store = user(owner().address());
        assertThat(put(store, "a")).isZero();
        Thread.currentThread().interrupt();
        try {
            assertThat(store.remove("a", true)).isEqualTo(StoreCode.RPC_TIMEOUT.number());
        } finally {
            assertThat(Thread.interrupted()).isTrue();
        }
        await("removed", () -> get(store, "a") == StoreCode.OBJECT_NOT_FOUND.number());
        assertThat(store.healthCheck()).isZero();
    }

    @Test
    void anOwnerThatIsStartedAnewIsFoundAgainByItself() throws IOException {
        int port = freePort();
        var first = owner(port, Duration.ofSeconds(60));
        var store = user(first.address());
        assertThat(put(store, "k")).isZero();
        assertThat(get(store, "k")).isEqualTo(SIZE);
        store.removals();
        first.close();
        assertThat(get(store, "k")).isNegative();
        await("noticed", () -> store.healthCheck() != 0);
        long begin = System.nanoTime();
        assertThat(put(store, "k2")).isEqualTo(StoreCode.RPC_FAIL.number());
        assertThat(get(store, "k")).isEqualTo(StoreCode.RPC_FAIL.number());
        var results = new int[1];
        store.exists(List.of("k"), true, results);
        assertThat(results[0]).isEqualTo(StoreCode.RPC_FAIL.number());
        assertThat(System.nanoTime() - begin)
                .as("while it is away nobody waits for it")
                .isLessThan(Duration.ofSeconds(30).toNanos());
        owner(port, Duration.ofSeconds(60));
        await("found again", () -> store.healthCheck() == 0);
        assertThat(store.removals().all()).as("all of it is lost").isTrue();
        assertThat(get(store, "k")).isEqualTo(StoreCode.OBJECT_NOT_FOUND.number());
        assertThat(put(store, "k")).isZero();
        assertThat(get(store, "k")).isEqualTo(SIZE);
        assertThat(back.mismatch(value)).isEqualTo(-1);
    }

    @Test
    void aUserMayComeBeforeTheOwner() throws IOException {
        int port = freePort();
        var store = userOf("127.0.0.1:" + port);
        assertThat(store.healthCheck()).isEqualTo(StoreCode.RPC_FAIL.number());
        owner(port, Duration.ofSeconds(60));
        await("found", () -> store.healthCheck() == 0);
        assertThat(put(store, "k")).isZero();
    }

    @Test
    void nobodyWritesWithoutAGrant() {
        var owner = owner();
        var store = user(owner.address());
        assertThat(put(store, "k")).isZero();
        EmbeddedClient client = owner.store().client(StoreContract.ONE);
        var started = new @Nullable Started[1];
        client.putStart(
                List.of("other"),
                new long[] {SIZE},
                List.of(),
                PutOptions.DEFAULT,
                started,
                new int[1]);
        long target = Objects.requireNonNull(started[0]).memory().address();
        var segment = sessionOf(store).engine();
        try (var stranger = JavaTransferEngine.start(EngineConfig.defaults());
                var registered = stranger.register(value)) {
            for (long token : new long[] {0, 1, -1}) {
                var outcome =
                        stranger.transfer(
                                EngineRequest.write(
                                                segment,
                                                Ranges.of(registered.address(), target, 4096),
                                                Deadline.in(Duration.ofSeconds(20)))
                                        .withCapability(token));
                assertThat(outcome).isInstanceOf(EngineOutcome.Failed.class);
            }
            var read =
                    stranger.transfer(
                            EngineRequest.read(
                                    segment,
                                    Ranges.of(registered.address(), target, 4096),
                                    Deadline.in(Duration.ofSeconds(20))));
            assertThat(read).as("nor reads").isInstanceOf(EngineOutcome.Failed.class);
        }
        assertThat(get(store, "k")).isEqualTo(SIZE);
        assertThat(back.mismatch(value)).isEqualTo(-1);
    }

    private OwnerLink.Session sessionOf(RemoteStore store) {
        return store.link().session().orElseThrow();
    }

    @Test
    void describesMoreKeysThanOneQuestionHolds() {
        var store = user(owner().address());
        assertThat(put(store, "k")).isZero();
        var keys = new ArrayList<String>();
        for (int i = 0; i < StoreProtocol.MOST_KEYS; i++) {
            keys.add("none" + i);
        }
        keys.add("k");
        var found = new @Nullable ReplicaDescriptor[keys.size()];
        var results = new int[keys.size()];
        store.describe(keys, found, results);
        assertThat(results[0]).isEqualTo(StoreCode.OBJECT_NOT_FOUND.number());
        assertThat(results[keys.size() - 1]).isZero();
        assertThat(Objects.requireNonNull(found[keys.size() - 1]).length()).isEqualTo(SIZE);
    }

    @Test
    void aSoftPinThatNoMessageCanSayIsNotValid() {
        var store = user(owner().address());
        var results = new int[1];
        var options = PutOptions.DEFAULT.softPinned(Duration.ofSeconds(Long.MAX_VALUE));
        store.put(new StoreBatch().add("k").buffer(value), options, results);
        assertThat(results[0]).isEqualTo(StoreCode.INVALID_PARAMS.number());
    }

    @Test
    void aListThatIsLongerThanAMessageIsCutOff() {
        var store = user(owner().address());
        String start = "k".repeat(64 << 10);
        try (var small = Arena.ofShared()) {
            for (int i = 0; i < 300; i++) {
                var results = new int[1];
                store.put(
                        new StoreBatch().add(start + i).buffer(small.allocate(64)),
                        PutOptions.DEFAULT,
                        results);
                assertThat(results[0]).isZero();
            }
        }
        assertThat(store.list(StoreContract.ONE.tenant(), "", 1000)).hasSizeBetween(100, 200);
    }

    @Test
    void aUserWithAnEndlessNameIsRefused() {
        var owner = owner();
        var endless = new StoreIdentity("t", "m".repeat(1 << 20), "layout");
        var store = RemoteStore.open(patient(owner.address(), Optional.empty()), endless, false);
        open.add(store);
        assertThat(store.healthCheck()).isEqualTo(StoreCode.RPC_FAIL.number());
        assertThat(owner.users()).isZero();
    }

    @Test
    void damagedBytesAreNoObject() {
        var owner = owner();
        var store = user(owner.address());
        assertThat(put(store, "k")).isZero();
        try (var pinned = owner.store().client(StoreContract.ONE).pin(List.of("k"))) {
            MemorySegment memory = pinned.memory(0);
            byte old = memory.get(ValueLayout.JAVA_BYTE, 77);
            memory.set(ValueLayout.JAVA_BYTE, 77, (byte) (old ^ 1));
        }
        assertThat(get(store, "k")).isEqualTo(StoreCode.CHECKSUM_MISMATCH.number());
        assertThat(get(store, "k")).as("it went").isEqualTo(StoreCode.OBJECT_NOT_FOUND.number());
        assertThat(put(store, "k")).as("and can be stored again").isZero();
        assertThat(get(store, "k")).isEqualTo(SIZE);
    }

    @Test
    void whatASilentUserBeganIsGivenUp() {
        var owner = owner(0, Duration.ofSeconds(1));
        var link = new OwnerLink(owner.address(), Optional.empty(), StoreContract.ONE, false);
        open.add(link);
        // No life thread: it says hello by hand and falls silent.
        // Where the machine pauses for a second in between, the owner has forgotten it by then.
        await("begun", () -> hasBegunToPut(link, "k"));
        await("given up", () -> owner.store().keyCount() == 0 && owner.users() == 0);
        var store = user(owner.address());
        await("stored by another user", () -> put(store, "k") == 0);
    }

    private static boolean hasBegunToPut(OwnerLink link, String key) {
        link.begin();
        var session = link.session();
        if (session.isEmpty()) {
            return false;
        }
        var begun =
                link.ask(
                        session.get(),
                        StoreProtocol.Operation.PUT_START,
                        Duration.ofSeconds(20),
                        out -> {
                            out.i64(1);
                            StoreProtocol.write(out, PutOptions.DEFAULT);
                            out.i32(1).string(key).i64(SIZE).bool(false);
                        });
        return begun.code() == 0 && begun.body().bool();
    }

    @Test
    void keysThatWereStoredAreListedAndSoAreThoseThatWent() {
        var owner = owner();
        var store = user(owner.address());
        store.removals();
        for (int i = 0; i < 5; i++) {
            assertThat(put(store, "k" + i)).isZero();
        }
        assertThat(store.list("", "k", 3))
                .extracting(StoredKey::key)
                .containsExactly("k0", "k1", "k2");
        assertThat(store.list("", "k4", 3))
                .containsExactly(new StoredKey(StoreContract.ONE, "k4", SIZE, true, false));
        assertThat(store.list("another", "", 3)).isEmpty();
        assertThat(store.remove("k2", true)).isZero();
        var went = new ArrayList<String>();
        await(
                "told with a sign of life",
                () -> {
                    went.addAll(store.removals().keys());
                    return went.contains("k2");
                });
        await("usage", () -> store.usage().isPresent());
    }

    @Test
    void aSecretKeepsOthersOut() throws IOException {
        var secret = Files.writeString(folder.resolve("secret"), "0123456789abcdef");
        var other = Files.writeString(folder.resolve("other"), "fedcba9876543210");
        var owner =
                StoreOwner.start(
                        new StoreOwner.Settings(
                                "127.0.0.1",
                                0,
                                1 << 20,
                                StoreConfig.DEFAULT.withChecksums(true),
                                Duration.ofSeconds(60),
                                Optional.of(secret),
                                false));
        open.add(owner);
        var known = opened(owner, Optional.of(secret));
        await("opened", () -> known.healthCheck() == 0);
        assertThat(opened(owner, Optional.of(other)).healthCheck())
                .isEqualTo(StoreCode.RPC_FAIL.number());
        assertThat(opened(owner, Optional.empty()).healthCheck())
                .isEqualTo(StoreCode.RPC_FAIL.number());
    }

    private RemoteStore opened(StoreOwner owner, Optional<Path> secret) {
        var store = RemoteStore.open(patient(owner.address(), secret), StoreContract.ONE, false);
        open.add(store);
        return store;
    }

    @Test
    void afterCloseNoEngineIsStarted() throws IOException {
        var engines = new AtomicInteger();
        var config = patient("127.0.0.1:" + freePort(), Optional.empty());
        var store =
                RemoteStore.open(
                        config,
                        StoreContract.ONE,
                        false,
                        () -> {
                            engines.incrementAndGet();
                            return UserEngine.start(config);
                        });
        store.close();
        assertThat(store.register(value))
                .isEqualTo(StoreCode.UNAVAILABLE_IN_CURRENT_STATUS.number());
        assertThat(store.unregister(value)).isEqualTo(StoreCode.INVALID_PARAMS.number());
        assertThat(put(store, "k")).isEqualTo(StoreCode.UNAVAILABLE_IN_CURRENT_STATUS.number());
        assertThat(get(store, "k")).isEqualTo(StoreCode.UNAVAILABLE_IN_CURRENT_STATUS.number());
        assertThat(engines).hasValue(0);
    }

    /// A put waits for the engine that a registration starts. That fails, after the store has been
    /// closed.
    @Test
    void aCallThatCloseOvertakesStartsNoEngine() throws Exception {
        var config = patient(owner().address(), Optional.empty());
        var starting = new CountDownLatch(1);
        var go = new CountDownLatch(1);
        var engines = new AtomicInteger();
        var store =
                RemoteStore.open(
                        config,
                        StoreContract.ONE,
                        false,
                        () -> {
                            if (engines.incrementAndGet() > 1) {
                                return UserEngine.start(config);
                            }
                            starting.countDown();
                            await("go", () -> go.getCount() == 0);
                            throw new KvFerryException(ErrorCode.NO_MEMORY, "says the test");
                        });
        open.add(store);
        await("opened", () -> store.healthCheck() == 0);
        var registering = new FutureTask<>(() -> store.register(value));
        var putting = new FutureTask<>(() -> put(store, "k"));
        Thread.ofPlatform().start(registering);
        Thread putter = Thread.ofPlatform().unstarted(putting);
        Thread closer = Thread.ofPlatform().unstarted(store::close);
        try {
            assertThat(starting.await(50, TimeUnit.SECONDS)).isTrue();
            putter.start();
            await("put waits", () -> putter.getState() == Thread.State.BLOCKED);
            closer.start();
            await("close waits", () -> closer.getState() == Thread.State.BLOCKED);
        } finally {
            go.countDown();
        }
        assertThatThrownBy(() -> registering.get(50, TimeUnit.SECONDS))
                .hasMessageContaining("says the test");
        assertThatThrownBy(() -> putting.get(50, TimeUnit.SECONDS))
                .hasMessageContaining("has been closed");
        assertThat(closer.join(Duration.ofSeconds(50))).isTrue();
        assertThat(engines).hasValue(1);
    }

    @Test
    void otherHostsNeedASecret() {
        var settings = StoreOwner.Settings.local(0, 1 << 20);
        assertThatThrownBy(() ->
                        StoreOwner.start(
                                new StoreOwner.Settings(
                                        "0.0.0.0",
                                        0,
                                        1 << 20,
                                        settings.store(),
                                        Duration.ofSeconds(10),
                                        Optional.empty(),
                                        false)))
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("KVFERRY_SECRET_FILE");
        assertThatThrownBy(() ->
                        RemoteStore.open(
                                RemoteStoreConfig.of("192.0.2.1:50053"), StoreContract.ONE, false))
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("KVFERRY_SECRET_FILE");
        assertThatThrownBy(() -> RemoteStoreConfig.of("nowhere"))
                .hasMessageContaining("give host:port");
    }

    @Test
    void healthAndMetricsAreServed() throws Exception {
        var owner = owner();
        var http = new OwnerHttp(owner, Optional.empty(), "127.0.0.1", 0);
        open.add(http);
        var store = user(owner.address());
        assertThat(put(store, "k")).isZero();
        assertThat(page(http, "/health")).contains("\"status\":\"ok\"");
        assertThat(page(http, "/metrics"))
                .contains("master_key_count 1\n", "master_total_capacity_bytes", "put_end");
        assertThat(page(http, "/get_all_keys")).isEqualTo("k\n");
        assertThat(page(http, "/get_all_segments")).isEqualTo(owner.address() + "\n");
    }

    private static String page(OwnerHttp http, String path)
            throws IOException, InterruptedException {
        try (var client = HttpClient.newHttpClient()) {
            return client.send(
                            HttpRequest.newBuilder(URI.create(http.url() + path))
                                    .timeout(Duration.ofSeconds(30))
                                    .build(),
                            HttpResponse.BodyHandlers.ofString())
                    .body();
        }
    }
}
