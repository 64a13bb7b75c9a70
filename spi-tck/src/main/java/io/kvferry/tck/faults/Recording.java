// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferBackendProvider;

import org.jspecify.annotations.Nullable;

import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.List;

/// Wraps providers so that every call on them, and on what they open, is written into one
/// [CallLog]. Parts are named `provider`, `scheduler`, `worker N` and `backend`.
public final class Recording {
    private Recording() {}

    public static KvConnectorProvider kv(KvConnectorProvider provider, CallLog log) {
        return Interceptor.wrap(
                KvConnectorProvider.class,
                provider,
                (method, arguments, proceed) -> {
                    var result = recorded(log, "provider", method, arguments, proceed);
                    return switch (result) {
                        case SchedulerConnector half ->
                                on(SchedulerConnector.class, half, "scheduler", log);
                        case WorkerConnector half ->
                                on(WorkerConnector.class, half, worker(arguments), log);
                        case null, default -> result;
                    };
                });
    }

    public static EcConnectorProvider ec(EcConnectorProvider provider, CallLog log) {
        return Interceptor.wrap(
                EcConnectorProvider.class,
                provider,
                (method, arguments, proceed) -> {
                    var result = recorded(log, "provider", method, arguments, proceed);
                    return switch (result) {
                        case EcSchedulerConnector half ->
                                on(EcSchedulerConnector.class, half, "scheduler", log);
                        case EcWorkerConnector half ->
                                on(EcWorkerConnector.class, half, worker(arguments), log);
                        case null, default -> result;
                    };
                });
    }

    public static TransferBackendProvider backend(TransferBackendProvider provider, CallLog log) {
        return Interceptor.wrap(
                TransferBackendProvider.class,
                provider,
                (method, arguments, proceed) -> {
                    var result = recorded(log, "provider", method, arguments, proceed);
                    return result instanceof TransferBackend opened
                            ? on(TransferBackend.class, opened, "backend", log)
                            : result;
                });
    }

    /// Wraps any object of the SPI.
    public static <T> T on(Class<T> type, T target, String part, CallLog log) {
        return Interceptor.wrap(
                type,
                target,
                (method, arguments, proceed) -> recorded(log, part, method, arguments, proceed));
    }

    private static String worker(@Nullable Object[] arguments) {
        return arguments[0] instanceof WorkerContext context
                ? "worker " + context.rank().rank()
                : "worker";
    }

    private static @Nullable Object recorded(
            CallLog log,
            String part,
            Method method,
            @Nullable Object[] arguments,
            Interceptor.Proceed proceed)
            throws Throwable {
        List<Object> given = Arrays.stream(arguments).map(a -> a == null ? "null" : a).toList();
        int index =
                log.begin(
                        new CallLog.Call(
                                part,
                                method.getName(),
                                given,
                                Thread.currentThread().getName(),
                                ""));
        try {
            var result = proceed.run();
            log.end(index, method.getReturnType() == void.class ? "" : String.valueOf(result));
            return result;
        } catch (Throwable e) {
            log.end(index, e.toString());
            throw e;
        }
    }
}
