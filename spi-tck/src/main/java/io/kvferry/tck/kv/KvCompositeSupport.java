// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.kv;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.tck.LeakCheck;
import io.kvferry.tck.faults.Probe;
import io.kvferry.tck.harness.ConnectorHarness;
import io.kvferry.tck.harness.HarnessShape;
import io.kvferry.tck.memory.MemoryStore;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/// What a subclass of [KvCompositeContract] supplies, and what its tests share: composites of
/// children that a test scripts.
abstract class KvCompositeSupport {
    static final Duration LIMIT = Duration.ofSeconds(10);
    static final int RANKS = 2;
    static final int[] PROMPT = IntStream.range(0, 14).map(i -> 500 + 3 * i).toArray();

    private final List<MemoryStore> stores = new ArrayList<>();
    private final List<ConnectorHarness> open = new ArrayList<>();
    private LeakCheck leaks = LeakCheck.snapshot();

    /// The composite under test.
    protected abstract KvConnectorProvider composite();

    /// Its `kv_connector_extra_config` with these children, asked in this order and each for
    /// everything that those before it do not have or fail to bring.
    protected abstract Map<String, Object> options(List<KvCompositeContract.Child> children);

    /// Services of a host in which the composite finds these plugins beside those on the class
    /// path. Asked once per test; the subclass closes after each test what stands behind them.
    protected abstract HostServices host(List<KvConnectorProvider> plugins);

    @BeforeEach
    final void takeStock() {
        leaks = LeakCheck.snapshot();
    }

    @AfterEach
    final void closeAndCheckLeaks() {
        open.forEach(ConnectorHarness::close);
        stores.forEach(MemoryStore::close);
        leaks.mustBeClean();
    }

    /// A store that is closed after the test.
    final MemoryStore store(String name) {
        var store = MemoryStore.open(name);
        stores.add(store);
        return store;
    }

    static HarnessShape shape() {
        return HarnessShape.small().withRanks(RANKS);
    }

    final HostServices hostOf(Probe.Kv... probes) {
        return host(Arrays.stream(probes).map(Probe::provider).toList());
    }

    static KvCompositeContract.Child child(Probe.Kv probe) {
        return new KvCompositeContract.Child(probe.provider(), Map.of("note", probe.name()));
    }

    final ConnectorConfig config(KvCompositeContract.Child... children) {
        return ConnectorConfig.of(
                composite().name(), KvRole.BOTH, "engine", options(List.of(children)));
    }

    final ConnectorHarness harness(HostServices host, KvCompositeContract.Child... children) {
        var harness = ConnectorHarness.open(composite(), config(children), shape(), host, 1);
        open.add(harness);
        return harness;
    }

    /// The first two beside each other, the third in a composite within the composite.
    final ConnectorHarness harness(Probe.Kv first, Probe.Kv second, Probe.Kv nested) {
        return harness(
                hostOf(first, second, nested),
                child(first),
                child(second),
                new KvCompositeContract.Child(composite(), options(List.of(child(nested)))));
    }
}
