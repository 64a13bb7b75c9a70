// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import static io.kvferry.engine.EngineTest.prompt;
import static io.kvferry.engine.EngineTest.request;
import static io.kvferry.engine.EngineTest.run;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.engine.testkit.ScriptedKv;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.ProvidedMemory;

import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

import java.lang.foreign.Arena;
import java.lang.foreign.ValueLayout;
import java.util.Optional;

/// The memory of the KV cache outlives everything that reads it, regardless of who allocated it.
class CacheMemoryTest extends ConnectedEngine {
    /// Touched when it is freed: whoever freed it before fails here.
    private record Given(Arena arena, MemoryRange.Host range, ScriptedKv kv)
            implements ProvidedMemory {
        static Given of(long bytes, ScriptedKv kv) {
            var arena = Arena.ofShared();
            return new Given(arena, new MemoryRange.Host(arena.allocate(bytes, 4096)), kv);
        }

        @Override
        public void close() {
            range.segment().set(ValueLayout.JAVA_BYTE, 0, (byte) 1);
            kv.calls.add("free memory");
            arena.close();
        }
    }

    @BeforeEach
    void readWhenClosed() {
        kv.readsWhenClosed = true;
    }

    private void provide() {
        kv.memory = Optional.of(bytes -> Given.of(bytes, kv));
    }

    @Test
    void theEnginesOwnMemoryIsThereUntilTheHalfIsClosed() {
        try (var engine = open()) {
            run(engine, request(prompt(1, 20), 2));
        }
        assertThat(kv.calls).containsSubsequence("read regions 0", "closeWorker 0");
    }

    @Test
    void providedMemoryIsFreedOnceAfterEverythingThatReadsIt() {
        provide();
        try (var engine = open()) {
            run(engine, request(prompt(1, 20), 2));
        }
        assertThat(kv.calls)
                .containsSubsequence(
                        "provideMemory 0",
                        "registerRegions 0",
                        "read regions 0",
                        "closeWorker 0",
                        "free memory")
                .containsOnlyOnce("free memory");
    }

    @Test
    void providedMemoryIsFreedWhenTheEngineCannotStart() {
        provide();
        kv.throwIn = "registerRegions";
        assertThatThrownBy(() -> open().close()).hasMessageContaining("scripted: registerRegions");
        assertThat(kv.calls)
                .containsSubsequence("provideMemory 0", "closeWorker 0", "free memory")
                .containsOnlyOnce("free memory");
    }

    @Test
    void aHalfThatIsGivenUpDoesNotTakeItsMemoryAlong() {
        provide();
        try (var engine = open()) {
            run(engine, request(prompt(1, 20), 2));
            kv.throwIn = "beginStep";
            run(engine, request(prompt(2, 20), 2));
            assertThat(kv.calls).contains("closeWorker 0").doesNotContain("free memory");
        }
        assertThat(kv.calls).containsOnlyOnce("free memory");
    }
}
