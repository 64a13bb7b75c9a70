// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.engines;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.P2pNcclConnectorProvider;
import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.transfer.TransferBackends;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;
import java.util.function.UnaryOperator;

/// Whole engines that hand over through the connector. Their synthetic model verifies every byte
/// that it did not write itself.
public final class P2pEngines {
    public static final int TOKENS = 150;
    public static final int GENERATED = 8;
    public static final Duration SOON = Duration.ofSeconds(50);

    private static final int PORTS = 2;
    private static final Map<Integer, FileChannel> RESERVED = new HashMap<>();

    private P2pEngines() {}

    /// The first of `count` ports in a row, two at most, that are free now and stay so: they are
    /// below those that the kernel gives to connections, and those that the tests of other modules
    /// draw at the same time (from 20,000), and a locked file keeps them from other JVMs that run
    /// these.
    public static synchronized int freePorts(int count) throws IOException {
        assertThat(count).isBetween(1, PORTS);
        for (int tries = 0; tries < 1000; tries++) {
            int first = 12_000 + PORTS * ThreadLocalRandom.current().nextInt(4_000);
            boolean mine = RESERVED.containsKey(first);
            if (mine ? RESERVED.size() < 1000 : !reserve(first)) {
                continue;
            }
            var open = new ArrayList<ServerSocket>();
            try {
                for (int i = 0; i < count; i++) {
                    open.add(new ServerSocket(first + i, 1, InetAddress.getLoopbackAddress()));
                }
                return first;
            } catch (IOException e) {
                // taken: elsewhere
            } finally {
                for (var socket : open) {
                    socket.close();
                }
            }
        }
        throw new IOException("no " + count + " free ports in a row");
    }

    private static boolean reserve(int first) throws IOException {
        var folder = Path.of(System.getProperty("java.io.tmpdir"), "kvferry-test-ports");
        Files.createDirectories(folder);
        var file =
                FileChannel.open(
                        folder.resolve(String.valueOf(first)),
                        StandardOpenOption.CREATE,
                        StandardOpenOption.WRITE);
        if (file.tryLock() == null) {
            file.close();
            return false;
        }
        RESERVED.put(first, file); // until the JVM ends
        return true;
    }

    public static HostServices host(StagingPool pool) {
        return HostServices.of(EventSink.NONE, TransferBackends.NONE, pool, () -> {});
    }

    public static Map<String, Object> options(String sendType, int port) {
        var options = new HashMap<String, Object>();
        options.put("send_type", sendType);
        options.put("listen_port", (long) port);
        options.put("push_timeout", "20s"); // the machine may be busy
        return options;
    }

    public static Engine prefiller(int tp, Map<String, Object> model, Map<String, Object> options) {
        return open(KvRole.PRODUCER, "p", tp, model, options, HostServices.NONE);
    }

    public static Engine decoder(
            int tp, Map<String, Object> model, Map<String, Object> options, StagingPool pool) {
        return open(KvRole.CONSUMER, "d", tp, model, options, host(pool));
    }

    private static Engine open(
            KvRole role,
            String id,
            int tp,
            Map<String, Object> model,
            Map<String, Object> options,
            HostServices host) {
        return open(role, id, tp, model, options, host, new P2pNcclConnectorProvider());
    }

    public static Engine open(
            KvRole role,
            int tp,
            Map<String, Object> options,
            HostServices host,
            KvConnectorProvider provider) {
        return open(role, role.name(), tp, Map.of(), options, host, provider);
    }

    private static Engine open(
            KvRole role,
            String id,
            int tp,
            Map<String, Object> model,
            Map<String, Object> options,
            HostServices host,
            KvConnectorProvider provider) {
        return open(role, id, tp, model, options, host, provider, each -> each);
    }

    /// @param change of what the engine is like
    static Engine open(
            KvRole role,
            String id,
            int tp,
            Map<String, Object> model,
            Map<String, Object> options,
            HostServices host,
            KvConnectorProvider provider,
            UnaryOperator<EngineConfig> change) {
        var connector = ConnectorConfig.of("P2pNcclConnector", role, id, options);
        var config = config(tp, model).host(host).kvConnector(provider, connector);
        return Engine.open(change.apply(config)).start();
    }

    /// @param change of what the engine is like
    public static Engine open(
            KvRole role,
            Map<String, Object> options,
            HostServices host,
            UnaryOperator<EngineConfig> change) {
        return open(role, Map.of(), options, host, change);
    }

    /// @param change of what the engine is like
    public static Engine open(
            KvRole role,
            Map<String, Object> model,
            Map<String, Object> options,
            HostServices host,
            UnaryOperator<EngineConfig> change) {
        return open(
                role, role.name(), 1, model, options, host, new P2pNcclConnectorProvider(), change);
    }

    /// An engine that computes everything itself.
    public static Engine alone(Map<String, Object> model) {
        return Engine.open(config(1, model)).start();
    }

    private static EngineConfig config(int tp, Map<String, Object> model) {
        var all = new HashMap<String, Object>(model);
        all.putIfAbsent("kv_heads", 4L);
        return EngineConfig.of(new SyntheticProvider(), Path.of("."), all)
                .worldSize(tp)
                .blockCount(256)
                .stepTokens(64)
                .prefixCache(false)
                .closeLimit(Duration.ofSeconds(2));
    }

    public static int[] prompt(int seed, int tokens) {
        var prompt = new int[tokens];
        for (int i = 0; i < tokens; i++) {
            prompt[i] = 300 + (seed * 7919 + i * 31) % 20_000;
        }
        return prompt;
    }

    /// @param decoder port of its rank 0, 0 where it is not known
    public static RequestHandle prefill(Engine p, int[] prompt, String transfer, int decoder) {
        var params = new HashMap<String, Object>();
        params.put("do_remote_decode", true);
        params.put("transfer_id", transfer);
        if (decoder != 0) {
            params.put("decode_addr", "127.0.0.1:" + decoder);
        }
        return p.submit(
                GenerationRequest.of(prompt, SamplingParams.greedy(1))
                        .withKvParams(new TransferParams(params)));
    }

    public static RequestHandle decode(Engine d, int[] prompt, String transfer, int prefiller) {
        return decode(
                d,
                prompt,
                new TransferParams(
                        Map.of(
                                "do_remote_prefill",
                                true,
                                "transfer_id",
                                transfer,
                                "prefill_addr",
                                "127.0.0.1:" + prefiller)));
    }

    public static RequestHandle decode(Engine d, int[] prompt, TransferParams params) {
        return d.submit(
                GenerationRequest.of(prompt, SamplingParams.greedy(GENERATED))
                        .withFailurePolicy(LoadFailurePolicy.RECOMPUTE)
                        .withKvParams(params));
    }

    public static List<Integer> tokensAlone(Engine alone, int[] prompt) {
        return tokensAlone(alone, prompt, GENERATED);
    }

    public static List<Integer> tokensAlone(Engine alone, int[] prompt, int generated) {
        return tokens(
                finished(
                        alone.submit(
                                GenerationRequest.of(prompt, SamplingParams.greedy(generated)))));
    }

    public static List<Integer> tokens(Outcome.Finished outcome) {
        return java.util.Arrays.stream(outcome.tokens()).boxed().toList();
    }

    public static Outcome.Finished finished(RequestHandle handle) {
        var outcome = handle.await(Deadline.in(SOON));
        assertThat(outcome).as(handle.id()).isPresent();
        assertThat(outcome.get()).isInstanceOf(Outcome.Finished.class);
        return (Outcome.Finished) outcome.get();
    }

    public static int loaded(Outcome outcome) {
        return outcome.usage().external().stream().mapToInt(LookupResult.Share::tokens).sum();
    }

    /// Waits until no block is in use, and says so when some stay.
    public static void assertNothingHeld(Engine engine) {
        var limit = Deadline.in(SOON);
        for (var now = engine.stats();
                now.freeBlocks() < now.totalBlocks()
                        || now.held() > 0
                        || now.leasedBlocks() > 0
                        || now.quarantinedBlocks() > 0;
                now = engine.stats()) {
            assertThat(limit.passed()).as("blocks stay in use: %s", now).isFalse();
            LockSupport.parkNanos(1_000_000);
        }
    }

    /// Waits until the pool is empty.
    public static void assertNothingStaged(StagingPool pool) {
        var limit = Deadline.in(SOON);
        while (pool.available() < pool.capacity()) {
            assertThat(limit.passed()).as("staging memory stays in use: %s", pool).isFalse();
            LockSupport.parkNanos(1_000_000);
        }
    }
}
