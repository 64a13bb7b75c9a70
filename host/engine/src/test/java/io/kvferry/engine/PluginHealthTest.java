// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.observe.TraceEvent;

import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.Map;

class PluginHealthTest {
    private static TraceEvent incident(String kind, String by) {
        return new TraceEvent.Incident("", kind, by, Map.of("detail", "its port is closed"));
    }

    @Test
    void tellsWhichPluginIsOutOfOrderUntilItSaysThatItIsNot() {
        var passed = new ArrayList<TraceEvent>();
        var health = new PluginHealth(passed::add);
        health.emit(incident("something else", "a"));
        assertThat(health.reason()).isEmpty();
        health.emit(incident(TraceEvent.Incident.OUT_OF_ORDER, "a"));
        health.emit(incident(TraceEvent.Incident.OUT_OF_ORDER, "b"));
        assertThat(health.reason()).isEqualTo("a: its port is closed; b: its port is closed");
        health.emit(incident(TraceEvent.Incident.IN_ORDER, "a"));
        assertThat(health.reason()).isEqualTo("b: its port is closed");
        health.emit(incident(TraceEvent.Incident.IN_ORDER, "b"));
        assertThat(health.reason()).isEmpty();
        assertThat(passed).hasSize(5);
    }
}
