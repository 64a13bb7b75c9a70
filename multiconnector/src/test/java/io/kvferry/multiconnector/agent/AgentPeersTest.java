// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.TransferBackend.PeerState;
import io.kvferry.spi.transfer.TransferBackends.Choice;
import io.kvferry.spi.transfer.TransferBackends.Ranking;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;

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
        var options = AgentPair.options("x", Ranking.LISTED);
        try (var catalog = AgentPair.catalog(a)) {
            assertThatThrownBy(() -> new PeerId(" ", 1))
                    .isInstanceOf(IllegalArgumentException.class);
            refused(ErrorCode.BAD_CONFIG, () -> AgentPair.open("x", catalog));
            refused(ErrorCode.NOT_FOUND, () -> AgentPair.open("x", catalog, "A", "NONE"));
            refused(ErrorCode.BAD_CONFIG, () -> AgentPair.open("x", catalog, "A", "A"));
            refused(
                    ErrorCode.BAD_CONFIG,
                    () ->
                            TransferAgent.open(
                                    options,
                                    catalog,
                                    List.of(new Choice("A", Map.of("x", 1))),
                                    new AgentPair.Ear(),
                                    EventSink.NONE));
        }
        assertThat(a.open.get()).as("whatever was opened is closed again").isZero();
    }

    /// A failed open must close everything it opened, because the caller has nothing to close.
    @Test
    void noThreadOfAnAgentThatCouldNotBeOpenedStays() {
        var a = new TestBackend("A", new ArrayList<>(), Map.of("threading", "confined"));
        a.failingCloses.set(1);
        try (var catalog = AgentPair.catalog(a)) {
            refused(ErrorCode.NOT_FOUND, () -> AgentPair.open("x", catalog, "A", "NONE"));
        }
        assertThat(a.threads).isNotEmpty().noneMatch(Thread::isAlive);
    }

    @Test
    void opensBackendsFoundOnTheClassPath() {
        try (var catalog = PluginCatalog.ofClassPath();
                var agent = AgentPair.open("y", catalog, "MEMORY")) {
            assertThat(agent.capabilities().routes()).hasSize(4);
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
                assertThat(((MemoryTable.Area) handle).refused())
                        .hasEntrySatisfying(
                                "B",
                                failure ->
                                        assertThat(failure.code()).isEqualTo(ErrorCode.NO_MEMORY));
                assertThat(
                                ((AgentPrepared)
                                                pair.near.prepare(
                                                        Optional.empty(),
                                                        DescriptorList.of(handle)))
                                        .entries())
                        .containsOnlyKeys("A");
            }
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
                    () -> pair.near.prepare(Optional.of(pair.far.self()), DescriptorList.of(more)));

            AgentPair.meet(pair.near, pair.far);
            AgentPair.meet(pair.near, pair.far);
            assertThat(
                            ((AgentPrepared)
                                            pair.near.prepare(
                                                    Optional.of(pair.far.self()),
                                                    DescriptorList.of(more)))
                                    .entries())
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
                var stranger = AgentPair.open("s", catalog, "B")) {
            var blob = pair.far.localMetadata();
            blob[20] ^= 1;
            refused(ErrorCode.CORRUPT, () -> pair.near.loadPeer(pair.far.self(), blob));
            refused(ErrorCode.INVALID_REQUEST, () -> AgentPair.meet(pair.near, pair.near));
            assertThatThrownBy(() -> AgentPair.meet(pair.near, stranger))
                    .hasMessageContaining("no backend in common")
                    .hasMessageContaining("it has [B], this agent [A]");
            assertThat(pair.near.peer("s")).isEmpty();
        }
    }

    @Test
    void loadsAPeerOnAllBackendsOrOnNone() {
        var a = new TestBackend("A");
        var b = new TestBackend("B");
        try (var pair = new AgentPair(a, b);
                var other = AgentPair.open("other", pair.catalog(), "A", "B")) {
            b.refusePeers = true;
            refused(ErrorCode.CORRUPT, () -> AgentPair.meet(pair.near, other));
            assertThat(pair.near.peer("other")).isEmpty();

            b.refusePeers = false;
            AgentPair.meet(pair.near, other);
            assertThat(pair.near.peer("other").orElseThrow().states())
                    .isEqualTo(Map.of("A", PeerState.KNOWN, "B", PeerState.KNOWN));
        }
    }

    @Test
    void keepsWhatItKnewOfAPeerWhenAnUpdateFailsHalfWay() throws Exception {
        var a = new TestBackend("A");
        var b = new TestBackend("B");
        try (var pair = new AgentPair(a, b)) {
            b.refusePeers = true;
            refused(ErrorCode.CORRUPT, () -> AgentPair.meet(pair.near, pair.far));

            assertThat(AgentPair.end(pair.near.submit(pair.write())))
                    .isInstanceOf(TransferOutcome.Done.class);
            assertThat(a.drops).as("which end what is under way").hasValue(0);
        }
    }

    @Test
    void refusesHandlesOfAnEarlierLifeOfAPeer() throws Exception {
        try (var pair = new AgentPair(new TestBackend("A"));
                var arena = Arena.ofShared()) {
            var stale = pair.write();
            var oldBlob = pair.far.localMetadata();
            pair.far.close();
            try (var reborn = AgentPair.open("far", pair.catalog(), "A")) {
                var memory = reborn.register(new MemoryRange.Host(arena.allocate(AgentPair.BYTES)));
                AgentPair.meet(pair.near, reborn);

                refused(ErrorCode.STALE_INCARNATION, () -> pair.near.submit(stale));
                refused(
                        ErrorCode.STALE_INCARNATION,
                        () -> pair.near.loadPeer(pair.far.self(), oldBlob));
                var again =
                        new TransferRequest(
                                stale.operation(),
                                pair.local(),
                                pair.near.prepare(
                                        Optional.of(reborn.self()), DescriptorList.of(memory)),
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
            pair.near.dropPeer(pair.far.self());
            refused(ErrorCode.NOT_FOUND, () -> pair.near.submit(spec));
        }
    }

    @Test
    void deliversNotificationsAfterTheData() throws Exception {
        try (var pair = new AgentPair(new TestBackend("A"))) {
            pair.nearBytes.fill((byte) 4);
            AgentPair.end(
                    pair.near.submit(
                            AgentPair.notifying(
                                    pair.write(), "done".getBytes(StandardCharsets.UTF_8))));
            var received = pair.awaitNotes(pair.farEar, 1);

            assertThat(pair.farBytes.mismatch(pair.nearBytes)).isEqualTo(-1);
            assertThat(received)
                    .singleElement()
                    .satisfies(notification -> {
                        assertThat(notification.from()).isEqualTo(pair.near.self());
                        assertThat(notification.bytes())
                                .asString(StandardCharsets.UTF_8)
                                .isEqualTo("done");
                    });
            pair.far.notify(pair.near.self(), new byte[0]);
            assertThat(pair.awaitNotes(pair.nearEar, 1))
                    .singleElement()
                    .extracting(AgentPair.Ear.Note::bytes)
                    .isEqualTo(new byte[0]);
        }
    }

    @Test
    void notifiesByTheNextBackendWhenOneDoesNotTakeIt() {
        var a = new TestBackend("A");
        a.refuseNotify = true;
        try (var pair = new AgentPair(a, new TestBackend("B"))) {
            pair.near.notify(pair.far.self(), new byte[] {7});

            assertThat(pair.awaitNotes(pair.farEar, 1)).hasSize(1);
        }
    }

    @Test
    void tellsOfTheBestStateThatAnyBackendIsInWithAPeer() throws Exception {
        var a = new TestBackend("A");
        try (var pair = new AgentPair(a, new TestBackend("B"))) {
            a.failure = Optional.of(TestBackend.LOST);
            AgentPair.end(pair.near.submit(pair.write()));

            assertThat(pair.nearEar.states)
                    .as("A suspects the peer, B reaches it")
                    .containsExactly(PeerState.READY);
        }
    }
}
