// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.DiskConnectorProvider;
import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.toolkit.disk.FileCalls;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.concurrent.CountDownLatch;

/// The disk connector on a file system whose files do not open while it is held.
public final class HeldDisk implements KvConnectorProvider {
    private final KvConnectorProvider disk = new DiskConnectorProvider();
    private volatile CountDownLatch gate = new CountDownLatch(0);

    /// Lets no worker half open a file to read, until [#release].
    public void hold() {
        gate = new CountDownLatch(1);
    }

    public void release() {
        gate.countDown();
    }

    private FileCalls calls() {
        var real = FileCalls.ofPlatform();
        return (FileCalls)
                Proxy.newProxyInstance(
                        FileCalls.class.getClassLoader(),
                        new Class<?>[] {FileCalls.class},
                        (_, method, arguments) -> {
                            if (method.getName().equals("openRead")) {
                                gate.await();
                            }
                            try {
                                return method.invoke(real, arguments);
                            } catch (InvocationTargetException e) {
                                throw e.getCause();
                            }
                        });
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        return new DiskWorker(
                context, (config, listener) -> BlockStore.open(config, listener, calls()));
    }

    @Override
    public SchedulerConnector openScheduler(SchedulerContext context) {
        return disk.openScheduler(context);
    }

    @Override
    public ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host) {
        return disk.capabilities(config, host);
    }

    @Override
    public OptionSchema options() {
        return disk.options();
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return disk.spiVersions();
    }

    @Override
    public String name() {
        return disk.name();
    }

    @Override
    public String description() {
        return disk.description();
    }
}
