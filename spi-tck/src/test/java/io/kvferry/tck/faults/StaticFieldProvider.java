// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

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
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireWriter;
import io.kvferry.tck.memory.MemoryConnectorProvider;

import org.jspecify.annotations.Nullable;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/// A defect: its plans go through a static field, and what is handed to the engine is only a
/// number. Public, as a plugin is.
public final class StaticFieldProvider implements KvConnectorProvider {
    private static final Map<Long, Payload> PLANS = new ConcurrentHashMap<>();
    private static final AtomicLong NUMBERS = new AtomicLong();

    private final KvConnectorProvider sound = new MemoryConnectorProvider();

    @Override
    public String name() {
        return sound.name();
    }

    @Override
    public String description() {
        return sound.description();
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return sound.spiVersions();
    }

    @Override
    public OptionSchema options() {
        return sound.options();
    }

    @Override
    public ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host) {
        return sound.capabilities(config, host);
    }

    @Override
    public SchedulerConnector openScheduler(SchedulerContext context) {
        var half = sound.openScheduler(context);
        return standIn(
                SchedulerConnector.class,
                (_, method, arguments) -> {
                    var result = invoke(half, method, arguments);
                    if (!(result instanceof Payload plan) || plan.isEmpty()) {
                        return result;
                    }
                    long number = NUMBERS.incrementAndGet();
                    PLANS.put(number, plan);
                    return new WireWriter().i64(number).toPayload(1);
                });
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        var half = sound.openWorker(context);
        return standIn(
                WorkerConnector.class,
                (_, method, arguments) -> {
                    if (method.getName().equals("beginStep")
                            && arguments[0] instanceof WorkerStep step) {
                        half.beginStep(planned(step));
                        return null;
                    }
                    return invoke(half, method, arguments);
                });
    }

    private static <T> T standIn(Class<T> type, InvocationHandler handler) {
        return type.cast(
                Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
    }

    private static @Nullable Object invoke(
            Object half, Method method, @Nullable Object @Nullable [] arguments) throws Throwable {
        try {
            return method.invoke(half, arguments);
        } catch (InvocationTargetException e) {
            throw e.getCause() == null ? e : e.getCause();
        }
    }

    private static WorkerStep planned(WorkerStep step) {
        var plan =
                step.plan().isEmpty()
                        ? Payload.EMPTY
                        : PLANS.getOrDefault(step.plan().reader().i64(), Payload.EMPTY);
        return new WorkerStep(step.number(), plan, step.revoked(), step.forward(), step.limit());
    }
}
