// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.ec;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.memory.DType;
import io.kvferry.tck.LeakCheck;
import io.kvferry.tck.harness.HarnessShape;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.locks.LockSupport;

/// What a subclass of [EcConnectorContract] supplies, and what its tests share: an engine that
/// encodes and saves items, and one that loads them.
abstract class EcContractSupport {
    private final List<EcHarness> open = new ArrayList<>();
    private Optional<Map<String, Object>> optionsOnce = Optional.empty();
    private LeakCheck leaks = LeakCheck.snapshot();
    private int names;

    /// The connector under test.
    protected abstract EcConnectorProvider provider();

    /// Options for a source of items that is empty when the test starts and that all engines of the
    /// test share. Asked once per test.
    protected abstract Map<String, Object> options();

    protected HarnessShape shape() {
        return HarnessShape.small();
    }

    /// `ec_transfer_params` of a request whose items are to be handed to another engine.
    protected TransferParams producerParams() {
        return TransferParams.EMPTY;
    }

    protected HostServices host() {
        return HostServices.NONE;
    }

    protected Duration limit() {
        return Duration.ofSeconds(15);
    }

    /// Changes payload bytes of everything stored. False where that cannot be done.
    protected boolean damageStore() {
        return false;
    }

    /// Makes the source unreachable until the test ends. False where that cannot be done.
    protected boolean stopStore() {
        return false;
    }

    /// Whether the plugin's classes can be loaded apart from the host's, as a plugin folder does.
    /// False for one that looks for classes of its own among the host's services.
    protected boolean standsAlone() {
        return true;
    }

    /// Closes what the subclass opened; called after each test.
    protected void releaseStore() {}

    @BeforeEach
    final void takeStock() {
        leaks = LeakCheck.snapshot();
    }

    @AfterEach
    final void closeAndCheckLeaks() {
        open.forEach(EcHarness::close);
        releaseStore();
        leaks.mustBeClean();
    }

    final ConnectorConfig config(KvRole role, String engineId) {
        if (optionsOnce.isEmpty()) {
            optionsOnce = Optional.of(options());
        }
        return ConnectorConfig.of(provider().name(), role, engineId, optionsOnce.get());
    }

    final EcHarness harness(KvRole role, HarnessShape shape) {
        var harness =
                EcHarness.open(provider(), config(role, "ec-engine-" + names++), shape, host());
        harness.signalsWithin(limit());
        open.add(harness);
        return harness;
    }

    final EcHarness producer() {
        return harness(KvRole.PRODUCER, shape());
    }

    final EcHarness consumer() {
        return harness(KvRole.CONSUMER, shape());
    }

    final boolean has(Feature feature) {
        return provider().capabilities(config(KvRole.BOTH, "static"), host()).has(feature);
    }

    static EcItem item(String hash, int rows) {
        return item(hash, rows, DType.FLOAT32);
    }

    static EcItem item(String hash, int rows, DType dtype) {
        return new EcItem("asking", 0, hash, "image", rows, 24, dtype);
    }

    /// The item as the first one of a request.
    static EcItem requested(String requestId, EcItem item) {
        return requested(requestId, 0, item);
    }

    private static EcItem requested(String requestId, int index, EcItem item) {
        return new EcItem(
                requestId,
                index,
                item.hash(),
                item.modality(),
                item.embeddings(),
                item.width(),
                item.dtype());
    }

    /// Encodes items on the producer, each for a request of its own, and ends the requests.
    final void make(EcHarness producer, EcItem... items) {
        for (var item : items) {
            make(producer, "made-" + names++, item);
        }
    }

    /// Encodes the items of one request on the producer, and ends the request.
    final FinishDecision make(EcHarness producer, String requestId, EcItem... items) {
        var own = new ArrayList<EcItem>();
        for (var item : items) {
            own.add(requested(requestId, own.size(), item));
        }
        producer.submit(requestId, own, producerParams());
        own.forEach(producer::encode);
        producer.step();
        return producer.finish(requestId, FinishReason.LENGTH);
    }

    /// Makes items that the producer may still hold from the last time.
    final void makeAgain(EcHarness producer, EcItem... items) {
        producer.expireHolds();
        producer.stepUntil("end of all holds", limit(), () -> producer.openHolds().isEmpty());
        make(producer, items);
    }

    final void awaitHit(EcHarness producer, EcHarness consumer, EcItem item) {
        long end = System.nanoTime() + limit().toNanos();
        while (!(consumer.lookupSettled(item, limit()) instanceof LookupResult.Hit)) {
            assertThat(System.nanoTime())
                    .as("what was saved is never found: " + item)
                    .isLessThan(end);
            LockSupport.parkNanos(1_000_000);
            producer.step();
        }
    }

    final Completion.Result fetch(EcHarness producer, EcHarness consumer, EcItem item) {
        awaitHit(producer, consumer, item);
        return consumer.awaitEnd(consumer.load(item), limit()).result();
    }
}
