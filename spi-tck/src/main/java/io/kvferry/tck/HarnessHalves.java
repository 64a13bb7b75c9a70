// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.kv.BlockPoolUser;
import io.kvferry.spi.kv.HandshakeSink;
import io.kvferry.spi.kv.HandshakeSource;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.memory.RankInfo;
import io.kvferry.spi.wire.Payload;

import java.util.ArrayList;
import java.util.List;

/// The open halves of a KV connector.
record HarnessHalves(SchedulerConnector scheduler, List<WorkerConnector> workers)
        implements AutoCloseable {
    HarnessHalves {
        workers = List.copyOf(workers);
    }

    /// Opens scheduler, pool, workers with their regions, handshakes, in this order; or nothing.
    static HarnessHalves open(
            KvConnectorProvider provider,
            ConnectorConfig config,
            HarnessShape shape,
            HostServices host,
            HarnessMemory memory,
            HarnessPool pool) {
        var options = provider.options().read("options of " + provider.name(), config.extra());
        long incarnation = System.nanoTime();
        var opened = new ArrayList<AutoCloseable>();
        try {
            var scheduler =
                    provider.openScheduler(
                            new SchedulerContext(
                                    provider.name(),
                                    config,
                                    options,
                                    shape.namespace(),
                                    shape.spec(),
                                    shape.ranks(),
                                    incarnation,
                                    host));
            opened.add(scheduler);
            if (scheduler instanceof BlockPoolUser user) {
                user.bindBlockPool(pool);
            }
            var workers = new ArrayList<WorkerConnector>();
            for (int rank = 0; rank < shape.ranks(); rank++) {
                var worker =
                        provider.openWorker(
                                new WorkerContext(
                                        provider.name(),
                                        config,
                                        options,
                                        shape.namespace(),
                                        shape.spec(),
                                        RankInfo.tensorParallel(rank, shape.ranks()),
                                        incarnation,
                                        host));
                workers.add(worker);
                opened.add(worker);
                worker.registerRegions(memory.registered(rank));
            }
            exchangeHandshakes(scheduler, workers);
            return new HarnessHalves(scheduler, workers);
        } catch (RuntimeException | Error e) {
            closeQuietly(opened, e);
            throw e;
        }
    }

    private static void exchangeHandshakes(
            SchedulerConnector scheduler, List<WorkerConnector> workers) {
        var handshakes = new ArrayList<Payload>();
        for (var worker : workers) {
            var payload =
                    worker instanceof HandshakeSource source ? source.handshake() : Payload.EMPTY;
            handshakes.add(
                    payload.isEmpty()
                            ? Payload.EMPTY
                            : new Payload(payload.version(), payload.bytes().clone()));
        }
        if (scheduler instanceof HandshakeSink sink) {
            sink.onHandshakes(handshakes);
        }
    }

    private static void closeQuietly(List<AutoCloseable> opened, Throwable cause) {
        for (var half : opened) {
            try {
                half.close();
            } catch (Exception e) {
                cause.addSuppressed(e);
            }
        }
    }

    /// Workers first.
    @Override
    public void close() {
        workers.forEach(WorkerConnector::close);
        scheduler.close();
    }
}
