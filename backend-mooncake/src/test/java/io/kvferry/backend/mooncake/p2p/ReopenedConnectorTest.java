// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static io.kvferry.backend.mooncake.EngineRuns.alone;
import static io.kvferry.backend.mooncake.EngineRuns.assertNothingHeld;
import static io.kvferry.backend.mooncake.EngineRuns.finished;
import static io.kvferry.backend.mooncake.EngineRuns.loaded;
import static io.kvferry.backend.mooncake.EngineRuns.prompt;
import static io.kvferry.backend.mooncake.p2p.testkit.EnginePair.decode;
import static io.kvferry.backend.mooncake.p2p.testkit.EnginePair.generate;
import static io.kvferry.backend.mooncake.p2p.testkit.EnginePair.prefill;
import static io.kvferry.tck.FreePorts.freePort;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.EngineRuns;
import io.kvferry.backend.mooncake.p2p.testkit.EnginePair;
import io.kvferry.engine.Engine;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.WorkerConnector;

import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;

/// An engine turns the connector off after an Error and opens it again, as another incarnation over
/// the same memory: peers find it, and hand over again.
class ReopenedConnectorTest {
    private static final int TOKENS = 150;

    /// The next step of a worker half ends with an Error.
    private static KvConnectorProvider breaking(AtomicBoolean next) {
        var provider = new MooncakeConnectorProvider();
        return proxy(
                KvConnectorProvider.class,
                (method, arguments) -> {
                    var answer = invoke(provider, method, arguments);
                    return answer instanceof WorkerConnector half ? breaking(half, next) : answer;
                });
    }

    private static WorkerConnector breaking(WorkerConnector half, AtomicBoolean next) {
        return proxy(
                WorkerConnector.class,
                (method, arguments) -> {
                    if (method.getName().equals("endStep") && next.getAndSet(false)) {
                        throw new OutOfMemoryError("injected");
                    }
                    return invoke(half, method, arguments);
                });
    }

    private interface Call {
        Object call(Method method, Object[] arguments) throws Throwable;
    }

    private static <T> T proxy(Class<T> type, Call call) {
        return type.cast(
                Proxy.newProxyInstance(
                        type.getClassLoader(),
                        new Class<?>[] {type},
                        (_, method, arguments) -> call.call(method, arguments)));
    }

    private static Object invoke(Object target, Method method, Object[] arguments)
            throws Throwable {
        try {
            return method.invoke(target, arguments);
        } catch (InvocationTargetException e) {
            throw e.getCause();
        }
    }

    private static void breakAndAwait(Engine engine, AtomicBoolean next) {
        next.set(true);
        finished(generate(engine, prompt(50, 20)));
        var limit = Deadline.in(EngineRuns.SOON);
        while (engine.stats().counters().getOrDefault("connectors_reopened", 0L) == 0
                && !limit.passed()) {
            LockSupport.parkNanos(1_000_000);
        }
        assertThat(engine.stats().degraded()).isEmpty();
        assertThat(engine.stats().counters().getOrDefault("connectors_reopened", 0L)).isEqualTo(1);
    }

    @Test
    void handsOverAgainAfterAnErrorOnEitherSide() throws IOException {
        int port = freePort();
        var breakP = new AtomicBoolean();
        var breakD = new AtomicBoolean();
        var none = Map.<String, Object>of();
        var bootstrap = Map.<String, Object>of("bootstrap_port", port);
        try (var p =
                        EnginePair.open(
                                KvRole.PRODUCER,
                                "p",
                                2,
                                none,
                                bootstrap,
                                HostServices.NONE,
                                breaking(breakP));
                var d =
                        EnginePair.open(
                                KvRole.CONSUMER,
                                "d",
                                2,
                                none,
                                none,
                                HostServices.NONE,
                                breaking(breakD));
                var alone = alone(none)) {
            handOver(p, d, alone, port, 0, true);
            breakAndAwait(d, breakD);
            handOver(p, d, alone, port, 1, true);
            assertNothingHeld(p);
            breakAndAwait(p, breakP);
            // the decoder looks the prefiller up again once it has not been reached where it was
            handOver(p, d, alone, port, 2, false);
            handOver(p, d, alone, port, 3, true);
        }
    }

    private static void handOver(
            Engine p, Engine d, Engine alone, int port, int number, boolean mustLoad) {
        prefill(p, prompt(number, TOKENS), "x" + number);
        var outcome = finished(decode(d, prompt(number, TOKENS), port, "x" + number));
        assertThat(outcome.tokens())
                .isEqualTo(finished(generate(alone, prompt(number, TOKENS))).tokens());
        if (mustLoad) {
            assertThat(loaded(outcome))
                    .as("hand-over %d", number)
                    .isGreaterThanOrEqualTo(TOKENS - 1);
        }
        assertNothingHeld(d);
    }
}
