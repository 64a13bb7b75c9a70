// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import static io.kvferry.engine.EngineTest.config;
import static io.kvferry.engine.EngineTest.prompt;
import static io.kvferry.engine.EngineTest.request;
import static io.kvferry.engine.EngineTest.run;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.testkit.ScriptedKv;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.observe.TraceEvent;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;

/// What the tests of engines with a scripted connector share.
abstract class ConnectedEngine {
    static final int BLOCKS = 64;
    final ScriptedKv kv = new ScriptedKv();
    final List<TraceEvent> events = new CopyOnWriteArrayList<>();

    final HostServices host = HostServices.NONE.with(events::add, () -> {});

    final EngineConfig with(ScriptedKv connector, LoadFailurePolicy policy) {
        return config(Map.of("verify", "all"))
                .kvConnector(connector, connector.config(policy))
                .host(host)
                .revokeLimit(Duration.ofMillis(50))
                .closeLimit(Duration.ofMillis(50));
    }

    final Engine open() {
        return Engine.open(with(kv, LoadFailurePolicy.RECOMPUTE));
    }

    /// Another engine computes the prompt and leaves it in the store.
    final void store(int[] prompt) {
        var producer = new ScriptedKv(kv.store);
        try (var engine = Engine.open(with(producer, LoadFailurePolicy.FAIL))) {
            run(engine, request(prompt, 1));
        }
    }

    static Outcome outcome(Engine engine, RequestHandle handle) {
        var limit = Deadline.in(Duration.ofSeconds(60));
        while (handle.await(Deadline.in(Duration.ZERO)).isEmpty() && !limit.passed()) {
            engine.step();
        }
        return handle.await(Deadline.in(Duration.ZERO)).orElseThrow();
    }

    /// Nothing is leaked: every block is free again, whatever happened.
    static void assertEmpty(Engine engine) {
        var limit = Deadline.in(Duration.ofSeconds(10));
        while (engine.stats().freeBlocks() < BLOCKS && !limit.passed()) {
            engine.step();
        }
        engine.checkInvariants();
        assertThat(engine.stats().freeBlocks()).isEqualTo(BLOCKS);
        assertThat(engine.stats().leasedBlocks()).isZero();
        assertThat(engine.stats().held()).isZero();
    }

    final List<String> calls(String prefix) {
        return kv.calls.stream().filter(call -> call.startsWith(prefix)).toList();
    }
}
