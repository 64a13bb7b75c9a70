// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.Store;
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

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.concurrent.CountDownLatch;

/// The connector on a store whose reads do not begin while it is held.
final class HeldStore implements KvConnectorProvider {
    private final KvConnectorProvider real = new MooncakeStoreConnectorProvider();
    private volatile CountDownLatch gate = new CountDownLatch(0);

    /// Lets no worker half read, until [#release].
    void hold() {
        gate = new CountDownLatch(1);
    }

    void release() {
        gate.countDown();
    }

    private Store held(Store store) {
        return (Store)
                Proxy.newProxyInstance(
                        Store.class.getClassLoader(),
                        new Class<?>[] {Store.class},
                        (_, method, arguments) -> {
                            if (method.getName().equals("get")) {
                                gate.await();
                            }
                            try {
                                return method.invoke(store, arguments);
                            } catch (InvocationTargetException e) {
                                throw e.getCause();
                            }
                        });
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        return new StoreWorker(context, this::held);
    }

    @Override
    public String name() {
        return real.name();
    }

    @Override
    public String description() {
        return real.description();
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return real.spiVersions();
    }

    @Override
    public OptionSchema options() {
        return real.options();
    }

    @Override
    public ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host) {
        return real.capabilities(config, host);
    }

    @Override
    public SchedulerConnector openScheduler(SchedulerContext context) {
        return real.openScheduler(context);
    }
}
