// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.ProvidedMemory;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.Arena;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.IntFunction;

/// A scripted connector that also lets a test define the answers of feature methods and records all
/// calls; used as a child of a composite, for instance.
///
/// Threading: the test's thread.
///
/// @param <P> the provider's interface, of KV or of encoder-cache connectors
/// @param <S> what scripts its requests and items
public abstract sealed class Probe<P, S extends Scripted<S>> permits Probe.Kv, Probe.Ec {
    private final S script;
    private final P provider;
    private final CallLog log;
    private final Map<String, IntFunction<Object>> answers = new HashMap<>();
    private final Set<String> failing = ConcurrentHashMap.newKeySet();
    private final List<HostServices> hosts = new CopyOnWriteArrayList<>();

    private Probe(Class<P> type, S script, P recorded, CallLog log) {
        this.script = script;
        this.log = log;
        this.provider =
                Interceptor.wrap(
                        type,
                        recorded,
                        (_, arguments, proceed) -> {
                            int rank = arguments.length == 0 ? -1 : meet(arguments[0]);
                            return switch (proceed.run()) {
                                case SchedulerConnector half ->
                                        answering(SchedulerConnector.class, half, -1);
                                case EcSchedulerConnector half ->
                                        answering(EcSchedulerConnector.class, half, -1);
                                case WorkerConnector half ->
                                        answering(WorkerConnector.class, half, rank);
                                case EcWorkerConnector half ->
                                        answering(EcWorkerConnector.class, half, rank);
                                case Object other -> other;
                                case null -> null;
                            };
                        });
    }

    /// A KV connector.
    public static final class Kv extends Probe<KvConnectorProvider, ScriptedConnector> {
        public Kv(String name, Feature... claimed) {
            this(new ScriptedConnector(name, ConnectorCapabilities.of(claimed)), new CallLog());
        }

        private Kv(ScriptedConnector script, CallLog log) {
            super(KvConnectorProvider.class, script, Recording.kv(script, log), log);
        }
    }

    /// An encoder-cache connector.
    public static final class Ec extends Probe<EcConnectorProvider, ScriptedEcConnector> {
        public Ec(String name, Feature... claimed) {
            this(new ScriptedEcConnector(name, ConnectorCapabilities.of(claimed)), new CallLog());
        }

        private Ec(ScriptedEcConnector script, CallLog log) {
            super(EcConnectorProvider.class, script, Recording.ec(script, log), log);
        }
    }

    /// Notes the services of a context; the rank that it is for, or -1.
    private int meet(@Nullable Object context) {
        return switch (context) {
            case SchedulerContext c -> {
                hosts.add(c.host());
                yield -1;
            }
            case WorkerContext c -> {
                hosts.add(c.host());
                yield c.rank().rank();
            }
            case null, default -> -1;
        };
    }

    /// The call is written down, and then answered as the test says.
    private <H> H answering(Class<H> type, H half, int rank) {
        return Interceptor.wrap(
                type,
                half,
                (method, _, proceed) -> {
                    var scripted = proceed.run();
                    if (failing.remove(method.getName())) {
                        throw new IllegalStateException("injected into " + method.getName());
                    }
                    var answer = answers.get(method.getName());
                    return answer == null ? scripted : answer.apply(rank);
                });
    }

    public String name() {
        return script.name();
    }

    public P provider() {
        return provider;
    }

    /// What it does with requests and items.
    public S script() {
        return script;
    }

    /// Answers a method of its halves.
    public void on(String method, Object answer) {
        on(method, _ -> answer);
    }

    /// Answers a method of its halves, by rank, -1 for the scheduler half.
    public void on(String method, IntFunction<Object> answer) {
        answers.put(method, answer);
    }

    /// Has the next call of a method of its halves throw, after it was done.
    public void failNext(String method) {
        failing.add(method);
    }

    /// The services that its halves were given, in the order in which they were opened.
    public List<HostServices> hosts() {
        return List.copyOf(hosts);
    }

    /// Calls of a method on one of its halves: `scheduler`, `worker 0`.
    public List<CallLog.Call> calls(String half, String method) {
        return log.of(half, method);
    }

    /// How often one of these methods was called on any of its halves.
    public long count(String... methods) {
        return log.calls().stream()
                .filter(call ->
                        !call.part().equals("provider")
                                && Arrays.asList(methods).contains(call.method()))
                .count();
    }

    /// An argument of the last call of a method.
    public <T> T argument(String half, String method, int index, Class<T> type) {
        var last = calls(half, method).getLast();
        return Objects.requireNonNull(type.cast(last.arguments().get(index)));
    }

    /// Memory for a cache, to be answered to `provideMemory`.
    public record GivenMemory(MemoryRange.Host range, Arena arena) implements ProvidedMemory {
        public static GivenMemory of(long bytes) {
            var arena = Arena.ofShared();
            return new GivenMemory(new MemoryRange.Host(arena.allocate(bytes, 4096)), arena);
        }

        @Override
        public void close() {
            arena.close();
        }
    }
}
