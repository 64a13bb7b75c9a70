// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.store;

import io.kvferry.benchmarks.ProcessCost;
import io.kvferry.benchmarks.Tool;
import io.kvferry.benchmarks.mooncake.Child;
import io.kvferry.benchmarks.mooncake.Run;
import io.lettuce.core.LettuceFutures;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.codec.RedisCodec;
import io.lettuce.core.codec.StringCodec;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/// Redis on loopback without persistence, through Lettuce: one connection, the commands of a call
/// in one pipeline, values as byte arrays on the heap. An engine would copy these to and from its
/// memory, which is not counted here.
final class RedisContender implements Contender {
    static final String NAME = "Redis";
    private static final Duration PATIENCE = Duration.ofMinutes(1);

    private final Child server;
    private final RedisClient client;
    private final StatefulRedisConnection<String, byte[]> connection;
    private byte[][] values = new byte[0][];

    private RedisContender(Path program) throws IOException {
        String port = Child.freePort();
        server =
                new Child(
                        List.of(
                                program.toString(),
                                "--port",
                                port,
                                "--bind",
                                "127.0.0.1",
                                "--save",
                                "",
                                "--appendonly",
                                "no"),
                        Map.of());
        server.await("(Ready to accept connections)");
        client =
                RedisClient.create(
                        RedisURI.builder()
                                .withHost("127.0.0.1")
                                .withPort(Integer.parseInt(port))
                                .withTimeout(PATIENCE)
                                .build());
        connection = client.connect(RedisCodec.of(StringCodec.ASCII, ByteArrayCodec.INSTANCE));
        connection.setAutoFlushCommands(false);
    }

    /// Empty, after one visible line, where Redis is not installed.
    static Optional<RedisContender> start() throws IOException {
        var program = Tool.find("redis-server", "apt-get install redis-server");
        return program.isPresent()
                ? Optional.of(new RedisContender(program.get()))
                : Optional.empty();
    }

    @Override
    public String name() {
        return NAME;
    }

    private static String key(int index) {
        return "bandwidth-" + index;
    }

    @Override
    public Run put(int size, int calls) {
        if (values.length == 0 || values[0].length != size) {
            values = new byte[BATCH][size];
            for (int i = 0; i < BATCH; i++) {
                Arrays.fill(values[i], (byte) (i + 1));
            }
        }
        long nanos = 0;
        long cpu = -server.cpuNanos();
        for (int call = 0; call < calls; call++) {
            var removed = new ArrayList<RedisFuture<?>>();
            for (int i = 0; i < BATCH; i++) {
                removed.add(connection.async().del(key(i)));
            }
            await(removed);
            long own = ProcessCost.cpuSoFar();
            long begin = System.nanoTime();
            var stored = new ArrayList<RedisFuture<?>>();
            for (int i = 0; i < BATCH; i++) {
                stored.add(connection.async().set(key(i), values[i]));
            }
            await(stored);
            nanos += System.nanoTime() - begin;
            cpu += ProcessCost.cpuSoFar() - own;
        }
        return new Run((double) size * BATCH * calls, nanos, cpu + server.cpuNanos());
    }

    @Override
    public Run get(int size, int calls) {
        long nanos = 0;
        long cpu = -server.cpuNanos();
        for (int call = 0; call < calls; call++) {
            long own = ProcessCost.cpuSoFar();
            long begin = System.nanoTime();
            var found = new ArrayList<RedisFuture<byte[]>>();
            for (int i = 0; i < BATCH; i++) {
                found.add(connection.async().get(key(i)));
            }
            await(found);
            nanos += System.nanoTime() - begin;
            cpu += ProcessCost.cpuSoFar() - own;
            for (int i = 0; i < BATCH; i++) {
                if (!Arrays.equals(found.get(i).toCompletableFuture().join(), values[i])) {
                    throw new IllegalStateException("Redis: wrong bytes came back");
                }
            }
        }
        return new Run((double) size * BATCH * calls, nanos, cpu + server.cpuNanos());
    }

    private void await(List<? extends RedisFuture<?>> commands) {
        connection.flushCommands();
        if (!LettuceFutures.awaitAll(
                PATIENCE.toSeconds(), TimeUnit.SECONDS, commands.toArray(RedisFuture[]::new))) {
            throw new IllegalStateException("Redis does not answer");
        }
    }

    @Override
    public void close() {
        try {
            connection.close();
            client.shutdown(0, 1, TimeUnit.SECONDS);
        } finally {
            server.close();
        }
    }
}
