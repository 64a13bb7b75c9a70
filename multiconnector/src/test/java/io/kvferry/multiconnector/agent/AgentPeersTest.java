// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryKind;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.PeerState;
import io.kvferry.spi.transfer.TransferOutcome;

import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.Test;

import java.lang.foreign.Arena;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/// Backends, memory, peers and notifications of an agent.
class AgentPeersTest {
    private static void refused(ErrorCode code, ThrowingCallable call) {
        assertThatThrownBy(call)
                .isInstanceOfSatisfying(
                        KvFerryException.class, e -> assertThat(e.code()).isEqualTo(code));
    }

    @Test
    void refusesAnAgentWithoutANameOrBackendsOrWithOneTwice() {
        var a = new TestBackend("A");
        var options = AgentPair.options("x");
        try (var catalog = AgentPair.catalog(a)) {
            assertThatThrownBy(() -> new PeerId(" ", 1))
                    .isInstanceOf(IllegalArgumentException.class);
            refused(
                    ErrorCode.BAD_CONFIG,
                    () -> TransferAgent.open(options, catalog, List.of(), EventSink.NONE));
            refused(
                    ErrorCode.NOT_FOUND,
                    () ->
                            TransferAgent.open(
                                    options,
                                    catalog,
                                    List.of(BackendConfig.of("A"), BackendConfig.of("NONE")),
                                    EventSink.NONE));
            refused(
                    ErrorCode.BAD_CONFIG,
                    () ->
                            TransferAgent.open(
                                    options,
                                    catalog,
                                    List.of(BackendConfig.of("A"), BackendConfig.of("A")),
                                    EventSink.NONE));
            refused(
                    ErrorCode.BAD_CONFIG,
                    () ->
                            TransferAgent.open(
                                    options,
                                    catalog,
                                    List.of(new BackendConfig("A", 0, Map.of("x", 1))),
                                    EventSink.NONE));
        }
        assertThat(a.open.get()).as("whatever was opened is closed again").isZero();
    }

    @Test
    void opensBackendsFoundOnTheClassPath() {
        try (var catalog = PluginCatalog.ofClassPath();
                var agent =
                        TransferAgent.open(
                                AgentPair.options("y"),
                                catalog,
                                List.of(BackendConfig.of("MEMORY")),
                                EventSink.NONE)) {
            assertThat(agent.backends()).containsOnlyKeys("MEMORY");
        }
    }

    @Test
    void registersWithEveryBackendThatTakesIt() {
        var a = new TestBackend("A");
        var b = new TestBackend("B");
        try (var pair = new AgentPair(a, b);
                var arena = Arena.ofConfined()) {
            b.refuseMemory = true;
            var range = new MemoryRange.Host(arena.allocate(64));
            try (var handle = pair.near.register(range)) {
                assertThat(handle.backends()).containsExactly("A");
                assertThat(handle.refused())
                        .hasEntrySatisfying(
                                "B",
                                failure ->
                                        assertThat(failure.code()).isEqualTo(ErrorCode.NO_MEMORY));
                assertThat(pair.near.prepare(Optional.empty(), handle.whole()).entries())
                        .containsOnlyKeys("A");
            }
        }
    }

    @Test
    void registersWithAllOfTheNamedBackendsOrWithNone() {
        var a = new TestBackend("A");
        var b = new TestBackend("B");
        try (var pair = new AgentPair(a, b);
                var arena = Arena.ofConfined()) {
            b.refuseMemory = true;
            var range = new MemoryRange.Host(arena.allocate(64));

            refused(ErrorCode.NO_MEMORY, () -> pair.near.register(range, Set.of("A", "B")));
            refused(ErrorCode.NOT_FOUND, () -> pair.near.register(range, Set.of("Z")));
            long at = range.segment().address();
            refused(
                    ErrorCode.NOT_FOUND,
                    () ->
                            pair.near.prepare(
                                    Optional.empty(),
                                    DescriptorList.of(MemoryKind.HOST, 0, at, 64)));
        }
    }

    @Test
    void refusesMemoryThatNoBackendTakes() {
        try (var pair = new AgentPair(new TestBackend("A"))) {
            refused(
                    ErrorCode.UNSUPPORTED,
                    () -> pair.near.register(new MemoryRange.FileRange(Path.of("f"), 0, 10, true)));
        }
    }

    @Test
    void forgetsMemoryThatIsClosed() {
        try (var pair = new AgentPair(new TestBackend("A"))) {
            pair.nearMemory.close();
            pair.nearMemory.close();

            refused(ErrorCode.NOT_FOUND, pair::local);
        }
    }

    @Test
    void takesBackAfterItsEndWhatItHandedOut() {
        var confined = new TestBackend("A", new ArrayList<>(), Map.of("threading", "confined"));
        try (var pair = new AgentPair(confined, new TestBackend("B"))) {
            var list = pair.local();
            pair.near.close();

            list.close();
            pair.nearMemory.close();
        }
    }

    @Test
    void learnsOfMoreMemoryOfAKnownPeer() {
        try (var pair = new AgentPair(new TestBackend("A"));
                var arena = Arena.ofShared()) {
            var more = pair.far.register(new MemoryRange.Host(arena.allocate(64)));
            refused(
                    ErrorCode.NOT_FOUND,
                    () -> pair.near.prepare(Optional.of(pair.far.self()), more.whole()));

            pair.near.loadPeer(pair.far.localMetadata());
            pair.near.loadPeer(pair.far.localMetadata());
            assertThat(pair.near.prepare(Optional.of(pair.far.self()), more.whole()).entries())
                    .containsKey("A");
            more.close();
        }
    }

    @Test
    void refusesGarbageItsOwnBlobAndPeersWithNothingInCommon() {
        var a = new TestBackend("A");
        var b = new TestBackend("B");
        try (var pair = new AgentPair(a);
                var catalog = AgentPair.catalog(b);
                var stranger =
                        TransferAgent.open(
                                AgentPair.options("s"),
                                catalog,
                                List.of(BackendConfig.of("B")),
                                EventSink.NONE)) {
            var blob = pair.far.localMetadata();
            blob[20] ^= 1;
            refused(ErrorCode.CORRUPT, () -> pair.near.loadPeer(blob));
            refused(ErrorCode.INVALID_REQUEST, () -> pair.near.loadPeer(pair.near.localMetadata()));
            assertThatThrownBy(() -> pair.near.loadPeer(stranger.localMetadata()))
                    .hasMessageContaining("no backend in common")
                    .hasMessageContaining("it has [B], this agent [A]");
            assertThat(pair.near.peers())
                    .extracting(status -> status.id().agent())
                    .containsExactly("far");
        }
    }

    @Test
    void loadsAPeerOnAllBackendsOrOnNone() {
        var a = new TestBackend("A");
        var b = new TestBackend("B");
        try (var pair = new AgentPair(a, b);
                var other =
                        TransferAgent.open(
                                AgentPair.options("other"),
                                pair.catalog(),
                                List.of(BackendConfig.of("A"), BackendConfig.of("B")),
                                EventSink.NONE)) {
            b.refusePeers = true;
            refused(ErrorCode.CORRUPT, () -> pair.near.loadPeer(other.localMetadata()));
            assertThat(pair.near.peer("other")).isEmpty();

            b.refusePeers = false;
            pair.near.loadPeer(other.localMetadata());
            assertThat(pair.near.peer("other").orElseThrow().byBackend())
                    .isEqualTo(Map.of("A", PeerState.KNOWN, "B", PeerState.KNOWN));
        }
    }

    @Test
    void keepsWhatItKnewOfAPeerWhenAnUpdateFailsHalfWay() throws Exception {
        var a = new TestBackend("A");
        var b = new TestBackend("B");
        try (var pair = new AgentPair(a, b)) {
            b.refusePeers = true;
            refused(ErrorCode.CORRUPT, () -> pair.near.loadPeer(pair.far.localMetadata()));

            assertThat(AgentPair.end(pair.near.submit(pair.write().requiring("A"))))
                    .isInstanceOf(TransferOutcome.Done.class);
        }
    }

    @Test
    void refusesHandlesOfAnEarlierLifeOfAPeer() throws Exception {
        try (var pair = new AgentPair(new TestBackend("A"));
                var arena = Arena.ofShared()) {
            var stale = pair.write();
            var oldBlob = pair.far.localMetadata();
            pair.far.close();
            try (var reborn =
                    TransferAgent.open(
                            AgentPair.options("far"),
                            pair.catalog(),
                            List.of(BackendConfig.of("A")),
                            EventSink.NONE)) {
                var memory = reborn.register(new MemoryRange.Host(arena.allocate(AgentPair.BYTES)));
                pair.near.loadPeer(reborn.localMetadata());

                refused(ErrorCode.STALE_INCARNATION, () -> pair.near.submit(stale));
                refused(ErrorCode.STALE_INCARNATION, () -> pair.near.loadPeer(oldBlob));
                var again =
                        new TransferSpec(
                                stale.operation(),
                                pair.local(),
                                pair.near.prepare(Optional.of(reborn.self()), memory.whole()),
                                Deadline.in(Duration.ofSeconds(9)));
                assertThat(AgentPair.end(pair.near.submit(again)))
                        .isInstanceOf(TransferOutcome.Done.class);
            }
        }
    }

    @Test
    void endsTransfersToAPeerThatIsGone() throws Exception {
        try (var pair = new AgentPair(new TestBackend("A"))) {
            var spec = pair.write();
            pair.far.close();

            assertThat(AgentPair.end(pair.near.submit(spec)))
                    .isInstanceOfSatisfying(
                            TransferOutcome.Failed.class,
                            failed ->
                                    assertThat(failed.failure().code())
                                            .isEqualTo(ErrorCode.PEER_LOST));
            pair.near.dropPeer(pair.far.self());
            refused(ErrorCode.NOT_FOUND, () -> pair.near.dropPeer(pair.far.self()));
            refused(ErrorCode.NOT_FOUND, () -> pair.near.submit(spec));
        }
    }

    @Test
    void deliversNotificationsAfterTheData() throws Exception {
        try (var pair = new AgentPair(new TestBackend("A"))) {
            pair.nearBytes.fill((byte) 4);
            AgentPair.end(
                    pair.near.submit(
                            pair.write().notifying("done".getBytes(StandardCharsets.UTF_8))));
            var received = awaitNotifications(pair.far, 1);

            assertThat(pair.farBytes.mismatch(pair.nearBytes)).isEqualTo(-1);
            assertThat(received)
                    .singleElement()
                    .satisfies(notification -> {
                        assertThat(notification.from()).isEqualTo(pair.near.self());
                        assertThat(notification.backend()).isEqualTo("A");
                        assertThat(notification.bytes())
                                .asString(StandardCharsets.UTF_8)
                                .isEqualTo("done");
                    });
            pair.far.notify(pair.near.self(), new byte[0]);
            assertThat(awaitNotifications(pair.near, 1))
                    .singleElement()
                    .extracting(Notification::bytes)
                    .isEqualTo(new byte[0]);
        }
    }

    @Test
    void dropsAndCountsNotificationsBeyondTheBound() {
        var a = new TestBackend("A");
        try (var catalog = AgentPair.catalog(a);
                var sender =
                        TransferAgent.open(
                                AgentPair.options("sender"),
                                catalog,
                                List.of(BackendConfig.of("A")),
                                EventSink.NONE);
                var receiver =
                        TransferAgent.open(
                                AgentPair.options("receiver").withNotifications(3),
                                catalog,
                                List.of(BackendConfig.of("A")),
                                EventSink.NONE)) {
            sender.loadPeer(receiver.localMetadata());
            for (int i = 0; i < 10; i++) {
                sender.notify(receiver.self(), new byte[] {(byte) i});
            }
            var limit = Deadline.in(Duration.ofSeconds(20));
            while (receiver.droppedNotifications() < 7 && !limit.passed()) {
                Thread.onSpinWait();
            }
            assertThat(receiver.droppedNotifications()).isEqualTo(7);
            assertThat(receiver.drainNotifications(100)).hasSize(3);
        }
    }

    private static List<Notification> awaitNotifications(TransferAgent agent, int count) {
        var all = new ArrayList<Notification>();
        var limit = Deadline.in(Duration.ofSeconds(20));
        while (all.size() < count && !limit.passed()) {
            all.addAll(agent.drainNotifications(count - all.size()));
        }
        return all;
    }
}
