// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.kv;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.tck.JsonShape;
import io.kvferry.tck.LeakCheck;
import io.kvferry.tck.Mix;
import io.kvferry.tck.harness.ConnectorHarness;
import io.kvferry.tck.harness.HarnessRequest;
import io.kvferry.tck.harness.HarnessShape;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// What a subclass of [KvConnectorContract] supplies, and what its tests share: a producer engine
/// and a consumer engine on one source of blocks.
abstract class KvContractSupport {
    private final List<ConnectorHarness> open = new ArrayList<>();
    private Optional<Map<String, Object>> optionsOnce = Optional.empty();
    private LeakCheck leaks = LeakCheck.snapshot();
    private int names;

    /// The connector under test.
    protected abstract KvConnectorProvider provider();

    /// `kv_connector_extra_config` for a source of blocks that is empty when the test starts and
    /// that all engines of the test share. Asked once per test.
    protected abstract Map<String, Object> options();

    /// Options of the engine that uses what the other made; those of [#options] unless overridden.
    protected Map<String, Object> consumerOptions(Map<String, Object> producerOptions) {
        return producerOptions;
    }

    protected KvRole producerRole() {
        return KvRole.BOTH;
    }

    protected KvRole consumerRole() {
        return KvRole.BOTH;
    }

    /// `kv_transfer_params` of a request that is to be handed to another engine: the producer's
    /// request carries them, and the consumer's gets what the producer's response said. Only used
    /// without CONTENT_ADDRESSED, or with HOLD.
    protected TransferParams producerParams() {
        return new TransferParams(Map.of("do_remote_decode", true, "do_remote_prefill", false));
    }

    /// The cache to test with.
    protected HarnessShape shape() {
        return HarnessShape.small();
    }

    protected HostServices host() {
        return HostServices.NONE;
    }

    /// The connector's own deadlines plus some room: how long anything may take here.
    protected Duration limit() {
        return Duration.ofSeconds(15);
    }

    /// Changes payload bytes of everything stored, so that a checksum can notice. False where that
    /// cannot be done.
    protected boolean damageStore() {
        return false;
    }

    /// Makes the source of blocks unreachable until the test ends. False where that cannot be done.
    protected boolean stopStore() {
        return false;
    }

    /// Removes everything stored, as an eviction would. False where that cannot be done.
    protected boolean forgetStore() {
        return false;
    }

    /// Options that keep blocks for a consumer no longer than `time` unless the lease is renewed.
    /// Empty for a connector that does not renew leases.
    protected Optional<Map<String, Object>> optionsWithLease(Duration time) {
        return Optional.empty();
    }

    /// Options that limit the open and queued loads of a rank to `transfers`, so that more are
    /// refused with BACKPRESSURE. Empty for a connector without such a limit. Used by one test
    /// only, before its engines are opened.
    protected Optional<Map<String, Object>> optionsWithBound(int transfers) {
        return Optional.empty();
    }

    /// Lets no load end, until [#resumeStore]. False where that cannot be done.
    protected boolean stallStore() {
        return false;
    }

    /// Loads go on.
    protected void resumeStore() {}

    /// Whether an engine can load blocks saved with another tensor-parallel size, splitting the
    /// heads differently. If false, such a load must not be offered, or must fail.
    protected boolean loadsFromOtherTpSizes() {
        return false;
    }

    /// Whether every destination of a LAYERWISE_SAVE connector takes the layers as they are
    /// computed; false for a composite that also has another kind of child.
    protected boolean savesOnlyByLayers() {
        return true;
    }

    /// Whether copies of the plugin in several class loaders share the class of this name, because
    /// it belongs to the host or simulates a medium outside of the process.
    protected boolean isSharedClass(String name) {
        return false;
    }

    /// Whether the plugin's classes can be loaded apart from the host's, as a plugin folder does.
    /// False for one that looks for classes of its own among the host's services.
    protected boolean standsAlone() {
        return true;
    }

    /// Whether each half can have a class loader of its own. [#isSharedClass] names what the copies
    /// then have in common, such as classes that the plugin looks for among the host's services.
    protected boolean halvesCanBeSplit() {
        return standsAlone();
    }

    @BeforeEach
    final void takeStock() {
        leaks = LeakCheck.snapshot();
    }

    @AfterEach
    final void closeAndCheckLeaks() {
        open.forEach(ConnectorHarness::close);
        releaseStore();
        leaks.mustBeClean();
    }

    /// Closes what the subclass opened to hold or damage the store; called after each test.
    protected void releaseStore() {}

    final Map<String, Object> optionsOfThisTest() {
        if (optionsOnce.isEmpty()) {
            optionsOnce = Optional.of(options());
        }
        return optionsOnce.get();
    }

    final ConnectorCapabilities capabilities() {
        return provider()
                .capabilities(config(producerRole(), "static", optionsOfThisTest()), host());
    }

    final boolean has(Feature feature) {
        return capabilities().has(feature);
    }

    final boolean loads() {
        var consumer =
                provider()
                        .capabilities(
                                config(
                                        consumerRole(),
                                        "static",
                                        consumerOptions(optionsOfThisTest())),
                                host());
        return consumer.has(Feature.SYNC_LOAD) || consumer.has(Feature.ASYNC_LOAD);
    }

    /// Whether what one engine computed reaches the other through the params of the request.
    /// Override it for a content-addressed connector that does so under leases.
    protected boolean handsOff() {
        return !has(Feature.CONTENT_ADDRESSED) || has(Feature.HOLD);
    }

    final ConnectorConfig config(KvRole role, String engineId, Map<String, Object> options) {
        return ConnectorConfig.of(provider().name(), role, engineId, options);
    }

    final ConnectorHarness producer(HarnessShape shape) {
        return track(producerRole(), "producer-" + names++, optionsOfThisTest(), shape);
    }

    final ConnectorHarness consumer(HarnessShape shape) {
        return track(
                consumerRole(), "consumer-" + names++, consumerOptions(optionsOfThisTest()), shape);
    }

    final ConnectorHarness track(
            KvRole role, String engineId, Map<String, Object> options, HarnessShape shape) {
        return track(provider(), role, engineId, options, shape);
    }

    private ConnectorHarness track(
            KvConnectorProvider provider,
            KvRole role,
            String engineId,
            Map<String, Object> options,
            HarnessShape shape) {
        var fitting =
                provider()
                        .capabilities(config(role, engineId, options), host())
                        .requiredLayout()
                        .map(shape::withLayout)
                        .orElse(shape);
        var harness =
                ConnectorHarness.open(
                        provider, config(role, engineId, options), fitting, host(), 7);
        harness.signalsWithin(limit());
        open.add(harness);
        return harness;
    }

    /// Both engines of a test.
    final class Pair {
        final ConnectorHarness producer;
        final ConnectorHarness consumer;
        private int requests;

        Pair(HarnessShape shape) {
            this(provider(), shape, shape);
        }

        /// @param made of the producer
        /// @param wanted of the consumer
        Pair(KvConnectorProvider provider, HarnessShape made, HarnessShape wanted) {
            var options = optionsOfThisTest();
            producer = track(provider, producerRole(), "producer-" + names++, options, made);
            consumer =
                    track(
                            provider,
                            consumerRole(),
                            "consumer-" + names++,
                            consumerOptions(options),
                            wanted);
        }

        /// Computes a prompt on the producer and ends the request, so that a consumer can have its
        /// blocks.
        ///
        /// @return what the consumer's request is to carry
        TransferParams make(int[] prompt) {
            return make(prompt, prompt.length);
        }

        TransferParams make(int[] prompt, int chunk) {
            var params = handsOff() ? producerParams() : TransferParams.EMPTY;
            var request = producer.submit("made-" + requests++, prompt, "", params);
            producer.admit(request);
            if (request.state() == HarnessRequest.State.LOADING) {
                producer.awaitLoad(request, limit());
            }
            producer.prefill(request, chunk);
            producer.generate(request, 7);
            var decision = producer.finish(request, FinishReason.LENGTH);
            var out = JsonShape.copy(decision.params());
            producer.step();
            if (producer.openLeases().isEmpty() || out.values().isEmpty()) {
                producer.settle(limit());
            }
            return out;
        }

        /// A request of the consumer for the prompt, looked up until it can be loaded.
        HarnessRequest want(int[] prompt, TransferParams params) {
            var request = consumer.submit("wanted-" + requests++, prompt, "", params);
            awaitHit(request, 0);
            return request;
        }

        /// The hit for whole blocks of the prompt, which must come within the limit.
        LookupResult.Hit awaitHit(HarnessRequest request, int local) {
            int blockTokens = consumer.shape().blockTokens();
            int whole = (request.tokenCount() - 1) / blockTokens * blockTokens;
            long end = System.nanoTime() + limit().toNanos();
            while (true) {
                var answer = consumer.lookupSettled(request, local, limit());
                if (answer instanceof LookupResult.Hit hit && local + hit.tokens() >= whole) {
                    return hit;
                }
                if (System.nanoTime() > end) {
                    throw new AssertionError(
                            "what was made cannot be loaded within "
                                    + limit()
                                    + ": lookup of "
                                    + request
                                    + " with "
                                    + local
                                    + " local tokens answers "
                                    + answer);
                }
                LockSupport.parkNanos(1_000_000);
                producer.step();
                consumer.step();
            }
        }

        /// Loads the prompt on the consumer, checks every byte, computes the rest and ends the
        /// request.
        ///
        /// @return tokens that came from the connector
        int fetch(int[] prompt, TransferParams params) {
            var request = want(prompt, params);
            int tokens = load(request);
            assertThat(request.loadFailure()).as("load of " + request).isEmpty();
            assertThat(request.loadedTokens()).isEqualTo(tokens);
            consumer.prefill(request, prompt.length);
            consumer.finish(request, FinishReason.STOP);
            consumer.step();
            return tokens;
        }

        /// Starts and ends the load of a request that can have one.
        int load(HarnessRequest request) {
            var hit = awaitHit(request, 0);
            consumer.allocate(request, 0, hit);
            consumer.step();
            awaitLoadStepping(request);
            return hit.tokens();
        }

        /// The producer keeps stepping while the consumer waits.
        void awaitLoadStepping(HarnessRequest request) {
            consumer.stepUntil(
                    "end of the load of " + request,
                    limit(),
                    () -> {
                        producer.step();
                        return request.state() != HarnessRequest.State.LOADING;
                    });
        }

        /// Steps both until nothing is open on either side.
        void settle() {
            consumer.settle(limit());
            producer.stepUntil(
                    "the producer's holds end",
                    limit(),
                    () -> {
                        consumer.step();
                        return producer.openHolds().isEmpty() && producer.openLeases().isEmpty();
                    });
            producer.settle(limit());
            assertThat(producer.freeBlocks())
                    .as("free blocks of the producer")
                    .isEqualTo(producer.shape().blocks());
            assertThat(consumer.freeBlocks())
                    .as("free blocks of the consumer")
                    .isEqualTo(consumer.shape().blocks());
        }

        /// Ends what is still held for a consumer that does not come, then steps both until nothing
        /// is open.
        void settleIfPossible() {
            producer.expireHolds();
            producer.expireLeases();
            settle();
        }

        /// Resets and waits for the answer.
        boolean reset() {
            return producer.scheduler()
                    .resetCache(Deadline.in(limit()))
                    .toCompletableFuture()
                    .orTimeout(limit().toMillis(), TimeUnit.MILLISECONDS)
                    .join();
        }

        /// Takes away what was made; false where no way is known.
        boolean takeAway() {
            boolean gone = forgetStore();
            if (!gone && has(Feature.CONTENT_ADDRESSED) && has(Feature.RESET)) {
                assertThat(reset()).isTrue();
                gone = true;
            }
            if (!producer.openHolds().isEmpty() || !producer.openLeases().isEmpty()) {
                producer.expireHolds();
                producer.expireLeases();
                producer.stepUntil(
                        "holds revoked",
                        limit(),
                        () -> producer.openHolds().isEmpty() && producer.openLeases().isEmpty());
                gone = true;
            }
            return gone;
        }

        /// Makes the source fail: the store stops, or the producer dies.
        boolean breakSource() {
            if (stopStore()) {
                return true;
            }
            if (producer.openHolds().isEmpty() && producer.openLeases().isEmpty()) {
                return false;
            }
            producer.closeHalves();
            return true;
        }
    }

    final Pair pair() {
        return new Pair(shape());
    }

    /// Tokens of a prompt of `blocks` whole blocks and `more` tokens, the same for equal arguments.
    final int[] prompt(int seed, int blocks, int more) {
        var tokens = new int[blocks * shape().blockTokens() + more];
        for (int i = 0; i < tokens.length; i++) {
            tokens[i] = 300 + (int) (Mix.mix(seed * 1_000_003L + i) & 0x3fff);
        }
        return tokens;
    }

    /// For a connector that loads nothing: no prompt is ever found.
    final void neverHits() {
        var harness = consumer(shape());
        var request = harness.submit("r", prompt(1, 3, 1));
        assertThat(harness.lookupSettled(request, 0, limit()))
                .isInstanceOf(LookupResult.Miss.class);
        harness.finish(request, FinishReason.ABORT);
        harness.settle(limit());
    }

    /// Without those of single children: a composite may load from a second child what the first
    /// did not deliver.
    static List<Completion> whole(List<Completion> completions) {
        return completions.stream()
                .filter(completion -> completion.id().child().isEmpty())
                .toList();
    }
}
