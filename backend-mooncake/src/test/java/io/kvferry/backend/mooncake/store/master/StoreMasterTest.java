// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.master;

import static io.kvferry.tck.FreePorts.freePort;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import static java.util.concurrent.CompletableFuture.supplyAsync;
import static java.util.concurrent.TimeUnit.SECONDS;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;
import io.kvferry.backend.mooncake.store.remote.StoreOwner;
import io.kvferry.backend.mooncake.store.remote.StoreProtocol;
import io.kvferry.backend.mooncake.store.remote.StoreProtocol.Operation;
import io.kvferry.backend.mooncake.store.remote.StoreQuestions;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireWriter;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.SplittableRandom;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/// A master, owners that report to it, and those who ask it.
class StoreMasterTest {
    private static final Duration LONG = Duration.ofSeconds(50);

    /// Time to live of owners, after which the list of a new master is whole.
    private static final Duration TTL = Duration.ofSeconds(5);

    private static final Duration LITTLE = Duration.ofMillis(1);

    private final List<AutoCloseable> open = new ArrayList<>();

    @TempDir Path folder;

    @AfterEach
    void close() throws Exception {
        for (AutoCloseable each : open.reversed()) {
            each.close();
        }
    }

    private StoreMaster master(int port, Duration ttl, Optional<Path> secret) {
        return opened(StoreMaster.start(settings(port, ttl, secret)));
    }

    private static StoreMaster.Settings settings(int port, Duration ttl, Optional<Path> secret) {
        return new StoreMaster.Settings("127.0.0.1", port, ttl, secret, false);
    }

    private StoreMaster opened(StoreMaster master) {
        open.add(master);
        return master;
    }

    private StoreMaster master() {
        return master(0, Duration.ofMinutes(1), Optional.empty());
    }

    private static RemoteStoreConfig at(String address, Optional<Path> secret) {
        return new RemoteStoreConfig(address, Optional.empty(), secret, false, LONG, LONG);
    }

    private OwnerMembership owner(String master, ListedOwner owner) {
        var membership = OwnerMembership.start(at(master, Optional.empty()), owner);
        open.add(membership);
        return membership;
    }

    private static ListedOwner listed(int number, long epoch) {
        return new ListedOwner("s" + number, "127.0.0.1:" + (20_000 + number), epoch, 1000);
    }

    private static void await(String what, BooleanSupplier condition) {
        var limit = Deadline.in(LONG);
        while (!condition.getAsBoolean()) {
            assertThat(limit.passed()).as(what).isFalse();
            LockSupport.parkNanos(5_000_000);
        }
    }

    private static List<ListedOwner> asked(StoreMaster master) {
        return MasterView.ask(at(master.address(), Optional.empty()));
    }

    @Test
    void anOwnerThatIsReadyIsListedUntilItEnds() {
        var master = master();
        var owner = StoreOwner.start(StoreOwner.Settings.local(0, 1 << 20));
        open.add(owner);
        var membership = OwnerMembership.start(at(master.address(), Optional.empty()), owner);
        open.add(membership);
        await("listed", membership::isListed);
        assertThat(asked(master))
                .singleElement()
                .satisfies(listed -> {
                    assertThat(listed.address()).isEqualTo(owner.address());
                    assertThat(listed.segment()).isEqualTo(owner.address());
                    assertThat(listed.capacity()).isEqualTo(1 << 20);
                });
        membership.close();
        assertThat(asked(master)).isEmpty();
    }

    @Test
    void anOwnerThatFallsSilentIsTakenOffTheList() {
        var master = master(0, Duration.ofMillis(200), Optional.empty());
        try (var questions = new StoreQuestions("test", master.address(), Optional.empty())) {
            // One report without another one.
            assertThat(report(questions, listed(1, 5))).isZero();
            await("taken off", () -> master.owners().owners().isEmpty());
            assertThat(master.counters()).containsEntry("kvferry_master_owners_expired_total", 1L);
        }
    }

    private static int report(StoreQuestions questions, ListedOwner owner) {
        WireWriter question = StoreProtocol.question(Operation.REGISTER, 0, LONG);
        owner.write(question);
        return questions.ask(question, LONG).code();
    }

    @Test
    void aStaleOwnerHearsWhyItIsNotListed() {
        var master = master();
        try (var questions = new StoreQuestions("test", master.address(), Optional.empty())) {
            assertThat(report(questions, listed(1, 7))).isZero();
            assertThat(report(questions, listed(1, 6)))
                    .isEqualTo(StoreCode.SEGMENT_ALREADY_EXISTS.number());
            assertThat(report(questions, listed(1, 8))).isZero();
        }
        assertThat(owner(master.address(), listed(1, 7)).isListed()).isFalse();
        assertThat(asked(master)).containsExactly(listed(1, 8));
    }

    @Test
    void ownersReportToTheNextMasterAndUsersKeepTheirListMeanwhile() throws IOException {
        int port = freePort();
        var first = master(port, Duration.ofMinutes(1), Optional.empty());
        var one = owner(first.address(), listed(1, 1));
        var two = owner(first.address(), listed(2, 1));
        await("both", () -> one.isListed() && two.isListed());
        record Told(List<ListedOwner> owners, boolean whole) {}
        var heard = new CopyOnWriteArrayList<Told>();
        open.add(
                MasterView.open(
                        at(first.address(), Optional.empty()),
                        false,
                        (owners, whole, _) -> heard.add(new Told(owners, whole))));
        await("told", () -> !heard.isEmpty() && heard.getLast().owners().size() == 2);
        first.close();
        await("noticed", () -> !one.isListed() && !two.isListed());
        int before = heard.size();
        var clock = new StandingMaster(TTL.minus(LITTLE));
        var second = opened(StoreMaster.start(settings(port, TTL, Optional.empty()), clock));
        await("reported again", () -> second.owners().owners().size() == 2);
        clock.pass(LITTLE);
        await("told whole", () -> heard.size() > before && heard.getLast().whole());
        for (int i = before; i < heard.size(); i++) {
            assertThat(heard.get(i).owners().size() == 2 || !heard.get(i).whole())
                    .as("a list that lacks an owner is not called whole")
                    .isTrue();
        }
        assertThat(heard.getLast().owners()).containsExactlyInAnyOrder(listed(1, 1), listed(2, 1));
    }

    @Test
    void aMasterThatTakesConnectionsAndSaysNothingHoldsNobodyUp() throws IOException {
        try (var deaf = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            String address = "127.0.0.1:" + deaf.getLocalPort();
            var limit = Duration.ofMillis(500);
            var master =
                    new RemoteStoreConfig(
                            address, Optional.empty(), Optional.empty(), false, limit, limit);
            var owner = supplyAsync(() -> OwnerMembership.start(master, listed(1, 1)));
            var view = supplyAsync(() -> MasterView.open(master, false, (_, _, _) -> true));
            assertThatThrownBy(() -> MasterView.ask(master))
                    .isInstanceOf(KvFerryException.class)
                    .hasMessageContaining("does not answer");
            open.add(view.orTimeout(45, SECONDS).join());
            open.add(owner.orTimeout(45, SECONDS).join());
            assertThat(owner.join().isListed()).isFalse();
        }
    }

    @Test
    void garbageIsRefusedAndTheMasterStays() throws IOException {
        var master = master();
        var random = new SplittableRandom(7);
        String address = master.address();
        int port = Integer.parseInt(address.substring(address.indexOf(':') + 1));
        for (int i = 0; i < 50; i++) {
            try (var socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
                var bytes = new byte[1 + random.nextInt(300)];
                random.nextBytes(bytes);
                socket.getOutputStream().write(bytes);
            } catch (IOException _) {
                // it hung up first, which is its right
            }
        }
        try (var questions = new StoreQuestions("test", master.address(), Optional.empty())) {
            for (Operation operation : Operation.values()) {
                int code = questions.ask(garbage(operation, random), LONG).code();
                if (operation.isForMaster()) {
                    assertThat(code).as("%s", operation).isIn(0, StoreCode.INVALID_PARAMS.number());
                } else {
                    assertThat(code)
                            .as("%s", operation)
                            .isEqualTo(StoreCode.NOT_SUPPORTED.number());
                }
            }
            for (String none : List.of("", "h", "h:", ":1", "h:0", "h:65536", "h:99999999999")) {
                assertThat(report(questions, new ListedOwner("s", none, 1, 1)))
                        .as(none)
                        .isEqualTo(StoreCode.INVALID_PARAMS.number());
            }
            assertThat(report(questions, new ListedOwner(" ", "h:1", 1, 1)))
                    .isEqualTo(StoreCode.INVALID_PARAMS.number());
            assertThat(report(questions, new ListedOwner("s", "h:1", 1, -1)))
                    .isEqualTo(StoreCode.INVALID_PARAMS.number());
            assertThat(report(questions, new ListedOwner("s".repeat(5000), "h:1", 1, 1)))
                    .isEqualTo(StoreCode.INVALID_PARAMS.number());
        }
        assertThat(asked(master)).isEmpty();
        var membership = owner(master.address(), listed(1, 1));
        await("listed", membership::isListed);
    }

    private static WireWriter garbage(Operation operation, SplittableRandom random) {
        var bytes = new byte[random.nextInt(40)];
        random.nextBytes(bytes);
        return StoreProtocol.question(operation, random.nextLong(), LONG)
                .raw(bytes, 0, bytes.length);
    }

    @Test
    void anOwnerIsNoMaster() {
        var owner = StoreOwner.start(StoreOwner.Settings.local(0, 1 << 20));
        open.add(owner);
        assertThatThrownBy(() -> MasterView.ask(at(owner.address(), Optional.empty())))
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("NOT_SUPPORTED");
    }

    @Test
    void aSecretKeepsOthersOut() throws IOException {
        var secret = Files.writeString(folder.resolve("secret"), "0123456789abcdef");
        var other = Files.writeString(folder.resolve("other"), "fedcba9876543210");
        var master = master(0, Duration.ofMinutes(1), Optional.of(secret));
        var stranger =
                OwnerMembership.start(at(master.address(), Optional.of(other)), listed(1, 1));
        open.add(stranger);
        assertThat(stranger.isListed()).isFalse();
        assertThatThrownBy(() -> MasterView.ask(at(master.address(), Optional.empty())))
                .isInstanceOf(KvFerryException.class);
        var known = OwnerMembership.start(at(master.address(), Optional.of(secret)), listed(2, 1));
        open.add(known);
        await("listed", known::isListed);
        assertThat(MasterView.ask(at(master.address(), Optional.of(secret))))
                .containsExactly(listed(2, 1));
    }

    @Test
    void otherHostsNeedASecret() {
        assertThatThrownBy(() ->
                        StoreMaster.start(
                                new StoreMaster.Settings(
                                        "0.0.0.0",
                                        0,
                                        Duration.ofSeconds(10),
                                        Optional.empty(),
                                        false)))
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("KVFERRY_SECRET_FILE");
        assertThatThrownBy(() ->
                        OwnerMembership.start(
                                RemoteStoreConfig.of("192.0.2.1:50051"), listed(1, 1)))
                .hasMessageContaining("KVFERRY_SECRET_FILE");
        assertThatThrownBy(() ->
                        MasterView.open(
                                RemoteStoreConfig.of("192.0.2.1:50051"), false, (_, _, _) -> true))
                .hasMessageContaining("KVFERRY_SECRET_FILE");
    }

    @Test
    void healthMetricsAndTheListAreServed() throws Exception {
        var master = master();
        var http = new MasterHttp(master, Optional.empty(), "127.0.0.1", 0);
        open.add(http);
        var membership = owner(master.address(), listed(1, 9));
        await("listed", membership::isListed);
        assertThat(page(http, "/health")).contains("\"status\":\"ok\"");
        assertThat(page(http, "/metrics"))
                .contains("master_active_clients 1\n", "master_total_capacity_bytes 1000\n");
        assertThat(page(http, "/owners")).isEqualTo("s1\t127.0.0.1:20001\t1000\t9\n");
        assertThat(page(http, "/get_all_segments")).isEqualTo("s1\n");
        var secret = Files.writeString(folder.resolve("secret"), "0123456789abcdef");
        var closed =
                new MasterHttp(
                        master, at(master.address(), Optional.of(secret)).secret(), "127.0.0.1", 0);
        open.add(closed);
        assertThat(page(closed, "/owners")).contains("not signed");
    }

    private static String page(MasterHttp http, String path)
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
