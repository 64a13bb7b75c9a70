// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.observe.TraceEvent;
import io.kvferry.spi.observe.TraceEvent.Incident;

import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

class TroubleReportsTest {
    private final List<TraceEvent> told = new ArrayList<>();
    private final TroubleReports reports = new TroubleReports(told::add, "kv", 3);

    @Test
    void tellsEachChangeOnceAndNothingWhileAllServes() {
        reports.look(Optional.empty());
        assertThat(told).isEmpty();

        reports.look(Optional.of("port 7: too many open files"));
        reports.look(Optional.of("port 7: too many open files"));
        reports.look(Optional.of("port 7: closed"));
        reports.look(Optional.empty());
        reports.look(Optional.empty());

        assertThat(told)
                .containsExactly(
                        incident(Incident.OUT_OF_ORDER, "port 7: too many open files"),
                        incident(Incident.OUT_OF_ORDER, "port 7: closed"),
                        incident(Incident.IN_ORDER, ""));
    }

    private static Incident incident(String kind, String detail) {
        return new Incident("", kind, "kv/3", Map.of("detail", detail));
    }
}
