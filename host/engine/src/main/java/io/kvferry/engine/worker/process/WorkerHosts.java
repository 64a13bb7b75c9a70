// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.process;

import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.engine.worker.WorkerHost;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.Plugin;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.observe.EventSink;

import java.util.ServiceLoader;

/// Finds the [WorkerHost] of a worker process.
final class WorkerHosts {
    private WorkerHosts() {}

    static WorkerHost find() {
        return ServiceLoader.load(WorkerHost.class).findFirst().orElseGet(ClassPathHost::new);
    }

    /// Plugins from the class path, and no services but events.
    private static final class ClassPathHost implements WorkerHost {
        private HostServices services = HostServices.NONE;

        @Override
        public void configure(String hostConfig, EventSink events) {
            services = HostServices.NONE.with(events, () -> {});
            if (!hostConfig.isEmpty()) {
                throw new KvFerryException(
                        ErrorCode.BAD_CONFIG,
                        "the worker process was given a host configuration, but finds no WorkerHost");
            }
        }

        @Override
        public HostServices services() {
            return services;
        }

        @Override
        public ModelRunnerProvider runner(String name) {
            return plugin(ModelRunnerProvider.class, name);
        }

        @Override
        public KvConnectorProvider kvConnector(String name) {
            return plugin(KvConnectorProvider.class, name);
        }

        @Override
        public EcConnectorProvider ecConnector(String name) {
            return plugin(EcConnectorProvider.class, name);
        }

        private static <P extends Plugin> P plugin(Class<P> kind, String name) {
            for (var plugin : ServiceLoader.load(kind)) {
                if (plugin.name().equals(name) || plugin.aliases().contains(name)) {
                    return plugin;
                }
            }
            throw new KvFerryException(
                    ErrorCode.NOT_FOUND,
                    "the worker process finds no " + kind.getSimpleName() + " named " + name);
        }
    }
}
