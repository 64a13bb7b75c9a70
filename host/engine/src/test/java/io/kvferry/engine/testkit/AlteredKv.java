// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.testkit;

import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.WorkerConnector;

import org.jspecify.annotations.Nullable;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.LinkedHashSet;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.function.UnaryOperator;

/// A connector whose halves do what a test says, and otherwise what the connector behind them does.
public final class AlteredKv {
    private AlteredKv() {}

    /// One call of a half.
    public interface Alteration {
        /// @param half "scheduler" or "worker"
        /// @param normally what the connector behind does
        @Nullable Object call(
                String half,
                String method,
                @Nullable Object @Nullable [] arguments,
                Callable<@Nullable Object> normally)
                throws Exception;
    }

    public static KvConnectorProvider of(KvConnectorProvider connector, Alteration alteration) {
        Alteration open =
                (_, _, _, normally) ->
                        switch (normally.call()) {
                            case SchedulerConnector half ->
                                    proxy(half, "scheduler", SchedulerConnector.class, alteration);
                            case WorkerConnector half ->
                                    proxy(half, "worker", WorkerConnector.class, alteration);
                            case null -> null;
                            case Object other -> other;
                        };
        return proxy(connector, "provider", KvConnectorProvider.class, open);
    }

    /// Changes what the worker halves report.
    public static KvConnectorProvider reporting(
            KvConnectorProvider connector, UnaryOperator<StepReport> change) {
        return of(
                connector,
                (_, method, _, normally) -> {
                    var answer = normally.call();
                    return method.equals("report") && answer instanceof StepReport report
                            ? change.apply(report)
                            : answer;
                });
    }

    private static <T> T proxy(T target, String half, Class<T> type, Alteration alteration) {
        var proxy =
                Proxy.newProxyInstance(
                        AlteredKv.class.getClassLoader(),
                        interfaces(target.getClass()).toArray(Class<?>[]::new),
                        (_, method, arguments) ->
                                alteration.call(
                                        half,
                                        method.getName(),
                                        arguments,
                                        () -> {
                                            try {
                                                method.setAccessible(true);
                                                return method.invoke(target, arguments);
                                            } catch (InvocationTargetException e) {
                                                if (e.getCause() instanceof Error error) {
                                                    throw error;
                                                }
                                                throw (Exception) e.getCause();
                                            }
                                        }));
        return type.cast(proxy);
    }

    private static Set<Class<?>> interfaces(Class<?> type) {
        var all = new LinkedHashSet<Class<?>>();
        for (Class<?> at = type; at != null; at = at.getSuperclass()) {
            for (var one : at.getInterfaces()) {
                all.add(one);
            }
        }
        return all;
    }
}
