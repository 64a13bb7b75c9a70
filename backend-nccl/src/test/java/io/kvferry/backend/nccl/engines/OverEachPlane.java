// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.engines;

import io.kvferry.backend.nccl.OverPlane;
import io.kvferry.backend.nccl.TestPlane;
import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.memory.StagingPool;

import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

import java.util.Map;
import java.util.function.UnaryOperator;

/// Tests of whole engines over each of the data planes.
@ParameterizedClass
@EnumSource(TestPlane.class)
abstract class OverEachPlane {
    final TestPlane plane;

    OverEachPlane(TestPlane plane) {
        this.plane = plane;
    }

    @BeforeEach
    void begin() {
        plane.begin();
    }

    Engine prefiller(int tp, Map<String, Object> model, Map<String, Object> options) {
        return open(KvRole.PRODUCER, tp, model, options, HostServices.NONE);
    }

    Engine decoder(
            int tp, Map<String, Object> model, Map<String, Object> options, StagingPool pool) {
        return open(KvRole.CONSUMER, tp, model, options, P2pEngines.host(pool));
    }

    private Engine open(
            KvRole role,
            int tp,
            Map<String, Object> model,
            Map<String, Object> options,
            HostServices host) {
        return P2pEngines.open(
                role, role.name(), tp, model, options, host, new OverPlane(plane), each -> each);
    }

    /// @param change of what the engine is like
    Engine open(
            KvRole role,
            Map<String, Object> options,
            HostServices host,
            UnaryOperator<EngineConfig> change) {
        return P2pEngines.open(
                role, role.name(), 1, Map.of(), options, host, new OverPlane(plane), change);
    }
}
