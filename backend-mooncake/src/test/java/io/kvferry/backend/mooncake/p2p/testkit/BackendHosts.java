// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.testkit;

import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferBackendProvider;
import io.kvferry.tck.memory.MemoryBackendProvider;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.net.URLClassLoader;
import java.util.List;
import java.util.Map;
import java.util.function.UnaryOperator;

/// Hosts that open transfer backends.
public final class BackendHosts {
    private BackendHosts() {}

    /// A host with an agent over the backends of the class path, MOONCAKE among them.
    public static Kvferry agent() {
        return Kvferry.open(PluginCatalog.ofClassPath(), EventSink.NONE, 1 << 20);
    }

    /// A host whose only backend comes from a class loader that the connector does not see.
    public static HostServices ofAnotherClassLoader() {
        try {
            var name = MemoryBackendProvider.class.getName();
            var provider =
                    (TransferBackendProvider)
                            new OwnFirst().loadClass(name).getConstructor().newInstance();
            if (provider instanceof MemoryBackendProvider) {
                throw new AssertionError("not another class loader");
            }
            return of(provider, UnaryOperator.identity());
        } catch (ReflectiveOperationException e) {
            throw new AssertionError(e);
        }
    }

    private static final class OwnFirst extends URLClassLoader {
        private static final String PACKAGE = MemoryBackendProvider.class.getPackageName();

        OwnFirst() {
            super(
                    new java.net.URL[] {
                        MemoryBackendProvider.class
                                .getProtectionDomain()
                                .getCodeSource()
                                .getLocation()
                    },
                    MemoryBackendProvider.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            synchronized (getClassLoadingLock(name)) {
                var known = findLoadedClass(name);
                if (known != null) {
                    return known;
                }
                return name.startsWith(PACKAGE) ? findClass(name) : super.loadClass(name, resolve);
            }
        }

        @Override
        public void close() throws IOException {
            super.close();
        }
    }

    /// A host with one backend.
    public static HostServices of(
            TransferBackendProvider provider, UnaryOperator<TransferBackend> around) {
        return HostServices.of(
                EventSink.NONE,
                (self, choices, _, sink) ->
                        around.apply(
                                provider.open(
                                        new BackendContext(
                                                self,
                                                provider.options()
                                                        .read(
                                                                provider.name(),
                                                                choices.getFirst().options()),
                                                sink,
                                                EventSink.NONE))),
                StagingPool.NONE,
                () -> {});
    }

    /// A backend that asks a test before each close.
    ///
    /// @param before may throw
    public static TransferBackend closing(TransferBackend backend, Runnable before) {
        return (TransferBackend)
                Proxy.newProxyInstance(
                        BackendHosts.class.getClassLoader(),
                        new Class<?>[] {TransferBackend.class},
                        (_, method, arguments) -> {
                            if (method.getName().equals("close")) {
                                before.run();
                            }
                            try {
                                return method.invoke(backend, arguments);
                            } catch (InvocationTargetException e) {
                                throw e.getCause();
                            }
                        });
    }

    public static Map<String, Object> over(String... backends) {
        return Map.of("transfer_backends", List.of((Object[]) backends));
    }
}
