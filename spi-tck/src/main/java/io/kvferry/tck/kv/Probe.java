// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.kv;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.tck.faults.CallLog;
import io.kvferry.tck.faults.Interceptor;
import io.kvferry.tck.faults.Recording;
import io.kvferry.tck.faults.ScriptedConnector;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.IntFunction;

/// A child of a composite, for [KvCompositeContract]: it answers what a test says and writes down
/// what it is told.
///
/// Threading: the test's thread.
final class Probe {
    private final String name;
    private final ScriptedConnector script;
    private final KvConnectorProvider provider;
    private final CallLog log = new CallLog();
    private final Map<String, IntFunction<Object>> answers = new HashMap<>();
    private final List<HostServices> hosts = new ArrayList<>();

    Probe(String name, Feature... claimed) {
        this(name, ConnectorCapabilities.of(claimed));
    }

    Probe(String name, ConnectorCapabilities capabilities) {
        this.name = name;
        script = new ScriptedConnector(name, capabilities);
        provider =
                Interceptor.wrap(
                        KvConnectorProvider.class,
                        Recording.kv(script, log),
                        (_, arguments, proceed) -> {
                            int rank = -1;
                            if (arguments.length > 0) {
                                if (arguments[0] instanceof SchedulerContext context) {
                                    hosts.add(context.host());
                                } else if (arguments[0] instanceof WorkerContext context) {
                                    hosts.add(context.host());
                                    rank = context.rank().rank();
                                }
                            }
                            return switch (proceed.run()) {
                                case SchedulerConnector half ->
                                        answering(SchedulerConnector.class, half, -1);
                                case WorkerConnector half ->
                                        answering(WorkerConnector.class, half, rank);
                                case Object other -> other;
                                case null -> null;
                            };
                        });
    }

    /// The call is written down, and then answered as the test says.
    private <H> H answering(Class<H> type, H half, int rank) {
        return Interceptor.wrap(
                type,
                half,
                (method, _, proceed) -> {
                    var scripted = proceed.run();
                    var answer = answers.get(method.getName());
                    return answer == null ? scripted : answer.apply(rank);
                });
    }

    String name() {
        return name;
    }

    KvConnectorProvider provider() {
        return provider;
    }

    KvCompositeContract.Child child() {
        return new KvCompositeContract.Child(provider, Map.of("note", name));
    }

    /// What it does with requests.
    ScriptedConnector script() {
        return script;
    }

    /// Answers a method of its halves.
    Probe on(String method, Object answer) {
        return on(method, _ -> answer);
    }

    /// Answers a method of its halves, by rank, -1 for the scheduler half.
    Probe on(String method, IntFunction<Object> answer) {
        answers.put(method, answer);
        return this;
    }

    /// The services that its halves were given, the scheduler half's first.
    List<HostServices> hosts() {
        return List.copyOf(hosts);
    }

    /// Calls of a method on one of its halves: `scheduler`, `worker 0`.
    List<CallLog.Call> calls(String half, String method) {
        return log.of(half, method);
    }

    /// How often one of these methods was called on any of its halves.
    long count(String... methods) {
        return log.calls().stream()
                .filter(call ->
                        !call.part().equals("provider")
                                && Arrays.asList(methods).contains(call.method()))
                .count();
    }

    /// An argument of the last call of a method.
    <T> T argument(String half, String method, int index, Class<T> type) {
        var last = calls(half, method).getLast();
        return Objects.requireNonNull(type.cast(last.arguments().get(index)));
    }
}
