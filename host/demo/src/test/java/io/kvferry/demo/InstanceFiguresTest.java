// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.entry;

import org.junit.jupiter.api.Test;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.LinkedHashMap;
import java.util.List;

class InstanceFiguresTest {
    private static final String METRICS =
            """
            # HELP kvferry_prompt_tokens_by_source_total Prompt tokens.
            kvferry_prompt_tokens_by_source_total{connector="",source="own cache"} 10.0
            kvferry_prompt_tokens_by_source_total{connector="",source="computed"} 20.0
            kvferry_prompt_tokens_by_source_total{connector="disk",source="connector"} 50.0
            kvferry_kv_disk_load_bytes_total{connector="disk",engine="0",model_name="m"} 4096.0
            kvferry_kv_waits_total{connector="MultiConnector",engine="0",model_name="m"} 3.0
            """;

    @Test
    void readsSourcesAndConnectorFigures() {
        var figures = InstanceFigures.parse(METRICS);
        assertThat(figures.promptTokens())
                .containsExactly(
                        entry("computed", 20L), entry("disk", 50L), entry("own cache", 10L));
        assertThat(figures.connectors())
                .containsExactly(
                        entry("MultiConnector waits", 3.0), entry("disk disk_load_bytes", 4096.0));
        assertThat(figures.hitRate()).isEqualTo(0.75);
    }

    @Test
    void tellsFiguresApartByTheirFurtherLabels() {
        var figures =
                InstanceFigures.parse(
                        """
                        vllm:store_bytes_total{connector="store",engine="0",model_name="m",operation="load_get",status="ok"} 7.0
                        vllm:store_bytes_total{connector="store",engine="0",model_name="m",operation="save_put",status="ok"} 9.0
                        vllm:store_seconds_sum{connector="store",engine="0",model_name="m",operation="save_put",status="ok"} 0.0716
                        """);
        assertThat(figures.connectors())
                .containsExactly(
                        entry("store store_bytes load_get ok", 7.0),
                        entry("store store_bytes save_put ok", 9.0),
                        entry("store store_seconds save_put ok", 0.0716));
        var engines = new LinkedHashMap<String, InstanceFigures>();
        engines.put("decode-0", figures);
        var out = new StringWriter();
        new DemoReport(List.of(), engines).print(new PrintWriter(out));
        assertThat(out.toString())
                .containsPattern("store_bytes load_get ok +7\\R")
                .containsPattern("store_seconds save_put ok +0.072\\R");
    }

    @Test
    void reportsEveryEnginesSources() {
        var engines = new LinkedHashMap<String, InstanceFigures>();
        engines.put("prefill", InstanceFigures.parse(""));
        engines.put("decode-0", InstanceFigures.parse(METRICS));
        var report = new DemoReport(List.of(), engines);
        var out = new StringWriter();
        report.print(new PrintWriter(out));
        assertThat(out.toString())
                .contains("decode-0")
                .containsPattern("disk +0 +50\\R")
                .containsPattern("hit rate +0.0 % +75.0 %");
        assertThat(report.toJson().at("/engines/decode-0/prompt_tokens_by_source/disk").asInt())
                .isEqualTo(50);
    }
}
