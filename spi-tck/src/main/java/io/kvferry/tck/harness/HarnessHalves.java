// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.harness;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.tck.Halves;

import java.util.ArrayList;
import java.util.List;

/// The open halves of a KV connector.
record HarnessHalves(SchedulerConnector scheduler, List<WorkerConnector> workers)
        implements AutoCloseable {
    HarnessHalves {
        workers = List.copyOf(workers);
    }

    /// Opens scheduler, pool, workers, what memory they provide, their regions, handshakes, in this
    /// order; or nothing.
    static HarnessHalves open(
            KvConnectorProvider provider,
            ConnectorConfig config,
            HarnessShape shape,
            HostServices host,
            HarnessMemory memory,
            HarnessPool pool) {
        var claimed = provider.capabilities(config, host);
        var options = provider.options().read("options of " + provider.name(), config.extra());
        long incarnation = System.nanoTime();
        var engine = shape.engine(incarnation);
        claimed.misfit(engine)
                .ifPresent(why -> {
                    throw new KvFerryException(ErrorCode.INCOMPATIBLE, provider.name() + " " + why);
                });
        var opened = new ArrayList<AutoCloseable>();
        try {
            var scheduler =
                    provider.openScheduler(
                            new SchedulerContext(provider.name(), config, options, engine, host));
            opened.add(scheduler);
            if (claimed.has(Feature.BLOCK_LEASES) || claimed.has(Feature.HOLD)) {
                scheduler.bindBlockPool(pool);
            }
            var workers = new ArrayList<WorkerConnector>();
            for (int rank = 0; rank < shape.ranks(); rank++) {
                var worker =
                        provider.openWorker(
                                new WorkerContext(
                                        provider.name(),
                                        config,
                                        options,
                                        shape.engine(incarnation, shape.stageOf(rank)),
                                        shape.rank(rank),
                                        host));
                workers.add(worker);
                opened.add(worker);
                if (claimed.has(Feature.PROVIDES_MEMORY)) {
                    int own = rank;
                    worker.provideMemory(memory.bytes(rank))
                            .ifPresent(provided -> memory.lieIn(own, provided));
                }
                worker.registerRegions(memory.registered(rank));
            }
            if (claimed.has(Feature.HANDSHAKE)) {
                Halves.exchangeHandshakes(scheduler, workers);
            }
            return new HarnessHalves(scheduler, workers);
        } catch (RuntimeException | Error e) {
            closeQuietly(opened, e);
            throw e;
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
        Halves.closeElsewhere(workers);
        scheduler.close();
    }
}
