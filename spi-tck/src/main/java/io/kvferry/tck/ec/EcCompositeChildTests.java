// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.ec;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.wire.Payload;
import io.kvferry.tck.LeakCheck;
import io.kvferry.tck.faults.Probe;
import io.kvferry.tck.faults.Probe.GivenMemory;
import io.kvferry.tck.harness.HarnessShape;
import io.kvferry.tck.memory.MemoryStore;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// What a composite passes on between its children and the engine, of [EcCompositeContract], and
/// what the subclass of that supplies.
abstract class EcCompositeChildTests {
    private static final int RANKS = 2;

    private final List<MemoryStore> stores = new ArrayList<>();
    private final List<EcHarness> open = new ArrayList<>();
    private LeakCheck leaks = LeakCheck.snapshot();

    /// The composite under test.
    protected abstract EcConnectorProvider composite();

    /// Its `ec_connector_extra_config` with these children, asked in this order and each for every
    /// item that those before it do not have or fail to bring.
    protected abstract Map<String, Object> options(List<EcCompositeContract.Child> children);

    /// Services of a host in which the composite finds these plugins beside those on the class
    /// path. Asked once per test; the subclass closes after each test what stands behind them.
    protected abstract HostServices host(List<EcConnectorProvider> plugins);

    @BeforeEach
    final void takeStock() {
        leaks = LeakCheck.snapshot();
    }

    @AfterEach
    final void closeAndCheckLeaks() {
        open.forEach(EcHarness::close);
        stores.forEach(MemoryStore::close);
        leaks.mustBeClean();
    }

    /// A store that is closed after the test.
    final MemoryStore store(String name) {
        var store = MemoryStore.open(name);
        stores.add(store);
        return store;
    }

    /// All but the last beside each other, that one in a composite within the composite.
    private EcHarness harness(Probe.Ec... probes) {
        var children = new ArrayList<EcCompositeContract.Child>();
        for (var probe : probes) {
            children.add(
                    new EcCompositeContract.Child(probe.provider(), Map.of("note", probe.name())));
        }
        var nested = List.of(children.removeLast());
        children.add(new EcCompositeContract.Child(composite(), options(nested)));
        var config =
                ConnectorConfig.of(composite().name(), KvRole.BOTH, "engine", options(children));
        var host = host(Arrays.stream(probes).map(Probe::provider).toList());
        var harness =
                EcHarness.open(composite(), config, HarnessShape.small().withRanks(RANKS), host);
        open.add(harness);
        return harness;
    }

    @Test
    @DisplayName("J7 the deadline of pending work is the earliest of its children's")
    void deadlinesOfChildrenAreMergedToTheEarliest() {
        var late = new Probe.Ec("Late");
        var nested = new Probe.Ec("Nested");
        var harness = harness(late, new Probe.Ec("None"), nested);
        assertThat(harness.scheduler().pendingWork()).as("of idle children").isEmpty();
        var inAMinute = Deadline.in(Duration.ofMinutes(1));
        var inAnHour = Deadline.in(Duration.ofHours(1));
        late.on("pendingWork", Optional.of(inAnHour));
        assertThat(harness.scheduler().pendingWork()).contains(inAnHour);
        nested.on("pendingWork", Optional.of(inAMinute));
        assertThat(harness.scheduler().pendingWork()).contains(inAMinute);
        nested.on("pendingWork", Optional.of(Deadline.in(Duration.ofHours(2))));
        assertThat(harness.scheduler().pendingWork()).contains(inAnHour);
    }

    @Test
    @DisplayName("J8 a child that wakes its host wakes the engine, from either half")
    void wakesOfChildrenReachTheEngine() {
        var first = new Probe.Ec("First");
        var nested = new Probe.Ec("Nested");
        var harness = harness(first, nested);
        for (var child : List.of(first, nested)) {
            assertThat(child.hosts()).as("halves of " + child.name()).hasSize(1 + RANKS);
            for (var host : child.hosts()) {
                int before = harness.wakes();
                host.wake();
                assertThat(harness.wakes()).as("by " + child.name()).isGreaterThan(before);
            }
        }
    }

    @Test
    @DisplayName("J9 one child at most provides the memory of the cache, and all work in it")
    void oneChildProvidesTheMemoryOfAll() {
        var plain = new Probe.Ec("Plain");
        var empty = new Probe.Ec("Empty", Feature.PROVIDES_MEMORY);
        var given = new ArrayList<GivenMemory>();
        var owner = new Probe.Ec("Owner", Feature.PROVIDES_MEMORY);
        owner.on(
                "provideMemory",
                rank -> {
                    var bytes = owner.argument("worker " + rank, "provideMemory", 0, Long.class);
                    given.add(GivenMemory.of(bytes));
                    return Optional.of(given.getLast());
                });
        var other = new Probe.Ec("Other", Feature.PROVIDES_MEMORY);
        harness(plain, empty, owner, other);
        assertThat(plain.count("provideMemory")).as("asked, and claims nothing").isZero();
        assertThat(other.count("provideMemory")).as("asked when there is memory").isZero();
        assertThat(given).as("memory of the owner, one per rank").hasSize(RANKS);
        for (int rank = 0; rank < RANKS; rank++) {
            var memory = given.get(rank).range().segment();
            for (var child : List.of(plain, empty, owner, other)) {
                var registered =
                        child.argument("worker " + rank, "registerMemory", 0, MemoryRange.class);
                assertThat(memory.asOverlappingSlice(registered.hostSegment()))
                        .as("memory of " + child.name())
                        .isPresent();
            }
        }
    }

    private static Payload greeting(Probe.Ec child, int rank) {
        var text = child.name() + " of rank " + rank;
        return new Payload(1, text.getBytes(StandardCharsets.UTF_8));
    }

    @Test
    @DisplayName("J10 each child gets the handshakes of its own worker halves, in rank order")
    void handshakesReachTheirChild() {
        var first = new Probe.Ec("First", Feature.HANDSHAKE);
        var plain = new Probe.Ec("Plain");
        var nested = new Probe.Ec("Nested", Feature.HANDSHAKE);
        for (var child : List.of(first, plain, nested)) {
            child.on("handshake", rank -> greeting(child, rank));
        }
        harness(first, plain, nested);
        for (var child : List.of(first, nested)) {
            assertThat(child.calls("scheduler", "onHandshakes")).hasSize(1);
            assertThat((Object) child.argument("scheduler", "onHandshakes", 0, List.class))
                    .isEqualTo(List.of(greeting(child, 0), greeting(child, 1)));
        }
        assertThat(plain.count("handshake", "onHandshakes")).isZero();
    }
}
