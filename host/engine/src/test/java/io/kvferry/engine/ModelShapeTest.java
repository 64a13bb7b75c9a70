// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import static io.kvferry.engine.EngineTest.prompt;
import static io.kvferry.engine.EngineTest.request;
import static io.kvferry.engine.EngineTest.run;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.engine.model.LayerGroup;
import io.kvferry.engine.testkit.AlteredModel;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.KvCacheGroup.Kind;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/// Which models the engine runs, and what it says of the others before anything is open.
class ModelShapeTest {
    private static final LayerGroup FULL = LayerGroup.attention(List.of("full.0", "full.1"));

    private static Engine open(AlteredModel model) {
        return Engine.open(EngineConfig.of(model, Path.of(""), Map.of()).blockTokens(4));
    }

    private static LayerGroup group(Kind kind, int blockMultiple, int window) {
        return new LayerGroup(kind, List.of("other.0"), blockMultiple, window, 64, 0, false);
    }

    static Stream<LayerGroup> refused() {
        return Stream.of(
                group(Kind.SLIDING_WINDOW, 1, 16),
                group(Kind.RECURRENT_STATE, 1, 0),
                group(Kind.HIDDEN_STATES, 1, 0),
                group(Kind.FULL_ATTENTION, 2, 0));
    }

    @ParameterizedTest
    @MethodSource("refused")
    void refusesGroupsThatItCannotKeep(LayerGroup group) {
        for (var groups : List.of(List.of(group), List.of(FULL, group))) {
            var model = AlteredModel.withGroups(groups);
            assertThatThrownBy(() -> open(model))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.UNSUPPORTED))
                    .hasMessageContaining(group.kind() + " of " + group.blockMultiple() + " times");
            assertThat(model.openModels()).isZero();
        }
    }

    @Test
    void runsSeveralGroupsOfFullAttention() {
        var model = AlteredModel.withGroups(List.of(FULL, LayerGroup.attention(List.of("more"))));
        try (var engine = open(model)) {
            assertThat(engine.cache().groups()).hasSize(2);
            assertThat(run(engine, request(prompt(1, 9), 3)).tokens()).hasSize(3);
        }
        assertThat(model.openModels()).isZero();
    }
}
