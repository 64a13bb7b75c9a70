// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.config;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.LoadFailurePolicy;

import org.assertj.core.api.AbstractThrowableAssert;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.util.Map;

class ConnectorConfigReaderTest {
    private static final String MINIMAL =
            """
            {"kv_connector": "DiskConnector", "kv_role": "kv_both"}\
            """;

    @Test
    void givesVllmsDefaultsForKeysLeftOut() {
        var config = kv(MINIMAL);

        assertThat(config)
                .isEqualTo(
                        ConnectorConfig.of(
                                "DiskConnector", KvRole.BOTH, config.engineId(), Map.of()));
        assertThat(config.failurePolicy()).isEqualTo(LoadFailurePolicy.FAIL);
        assertThat(config.port()).isEqualTo(14_579);
        assertThat(config.engineId()).isNotEqualTo(kv(MINIMAL).engineId());
    }

    @Test
    void readsEveryKvKey() {
        var config =
                kv(
                        """
                        {"kv_connector": "P2pNcclConnector", "kv_role": "kv_producer", "engine_id": "e1",
                         "kv_buffer_device": "cuda", "kv_buffer_size": 2e9, "kv_rank": 1, "kv_parallel_size": 2,
                         "kv_ip": "10.0.0.1", "kv_port": 21001, "kv_load_failure_policy": "recompute",
                         "enable_permute_local_kv": false, "kv_connector_module_path": null,
                         "kv_connector_extra_config": {"send_type": "PUT_ASYNC", "n": 3, "deep": {"x": [1.5, true]}, "no": null}}\
                        """);

        assertThat(config)
                .isEqualTo(
                        new ConnectorConfig(
                                "P2pNcclConnector",
                                KvRole.PRODUCER,
                                "e1",
                                "cuda",
                                2_000_000_000L,
                                1,
                                2,
                                "10.0.0.1",
                                21_001,
                                LoadFailurePolicy.RECOMPUTE,
                                Map.of(
                                        "send_type",
                                        "PUT_ASYNC",
                                        "n",
                                        3L,
                                        "deep",
                                        Map.of("x", java.util.List.of(1.5, true)))));
    }

    @Test
    void readsEveryEcKey() {
        var config =
                ConnectorConfigReader.read(
                        Family.EC,
                        """
                        {"ec_connector": "ECDiskConnector", "ec_role": "ec_consumer", "engine_id": "e2", "ec_buffer_device": "cpu",
                         "ec_buffer_size": 5, "ec_rank": 0, "ec_parallel_size": 1, "ec_ip": "127.0.0.1", "ec_port": 9,
                         "ec_connector_extra_config": {"path": "x"}}\
                        """);

        assertThat(config)
                .isEqualTo(
                        new ConnectorConfig(
                                "ECDiskConnector",
                                KvRole.CONSUMER,
                                "e2",
                                "cpu",
                                5,
                                0,
                                1,
                                "127.0.0.1",
                                9,
                                LoadFailurePolicy.FAIL,
                                Map.of("path", "x")));
    }

    @Test
    void takesQuotedNumbersAsVllmsRecipesWriteThem() {
        var config =
                kv(
                        """
                        {"kv_connector": "P2pNcclConnector", "kv_role": "kv_consumer", "kv_buffer_size": "8e9", "kv_port": "22001"}\
                        """);

        assertThat(config.bufferSizeBytes()).isEqualTo(8_000_000_000L);
        assertThat(config.port()).isEqualTo(22_001);
    }

    @Test
    void suggestsTheNearestKeyForATypo() {
        refused(
                        """
                        {"kv_conector": "DiskConnector", "kv_role": "kv_both"}\
                        """)
                .hasMessageContaining("unknown key \"kv_conector\"")
                .hasMessageContaining("did you mean \"kv_connector\"?")
                .hasMessageContaining("kv_connector_extra_config");
    }

    @Test
    void saysWhenAKeyBelongsToTheOtherFamily() {
        refused(
                        """
                        {"kv_connector": "DiskConnector", "kv_role": "kv_both", "ec_port": 1}\
                        """)
                .hasMessageContaining("--ec-transfer-config");
    }

    @Test
    void refusesAModulePathWithAdvice() {
        refused(
                        """
                        {"kv_connector": "Mine", "kv_role": "kv_both", "kv_connector_module_path": "my.module"}\
                        """)
                .hasMessageContaining("kv_connector_module_path")
                .hasMessageContaining("class path")
                .hasMessageContaining("plugin folder");
    }

    @Test
    void refusesLayoutPermutation() {
        refused(
                        """
                        {"kv_connector": "Mine", "kv_role": "kv_both", "enable_permute_local_kv": true}\
                        """)
                .hasMessageContaining("enable_permute_local_kv");
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "{'kv_role': 'kv_both'}                                                | kv_connector is missing",
                "{'kv_connector': 'A'}                                                 | kv_role is missing: one of kv_producer, kv_consumer, kv_both",
                "{'kv_connector': 'A', 'kv_role': 'both'}                              | kv_role: expected one of kv_producer, kv_consumer, kv_both, got \"both\"",
                "{'kv_connector': 'A', 'kv_role': 'kv_both', 'kv_port': 70000}         | kv_port: expected a whole number from 0 to 65535, got 70000",
                "{'kv_connector': 'A', 'kv_role': 'kv_both', 'kv_port': 'x'}           | kv_port: expected a whole number",
                "{'kv_connector': 'A', 'kv_role': 'kv_both', 'kv_rank': 0.5}           | kv_rank: expected a whole number",
                "{'kv_connector': 'A', 'kv_role': 'kv_both', 'kv_parallel_size': 0}    | kv_parallel_size: expected a whole number from 1",
                "{'kv_connector': 'A', 'kv_role': 'kv_both', 'kv_load_failure_policy': 'abort'} | expected \"fail\" or \"recompute\", got \"abort\"",
                "{'kv_connector': 'A', 'kv_role': 'kv_both', 'kv_connector_extra_config': []}   | kv_connector_extra_config: expected a JSON object",
                "{'kv_connector': 7, 'kv_role': 'kv_both'}                             | kv_connector: expected a non-empty string, got 7",
                "{'kv_connector': 'A', 'kv_connector': 'B', 'kv_role': 'kv_both'}      | uplicate",
                "{'kv_connector': 'A', 'kv_role': 'kv_both'} x                         | not a JSON object",
            })
    void saysWhatIsWrongAndWhere(String json, String message) {
        refused(json.replace('\'', '"'))
                .hasMessageStartingWith("--kv-transfer-config: ")
                .hasMessageContaining(message.strip());
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "null", "[1]", "{", "{\"a\": [}", "{'a'}", "kv_both"})
    void refusesWhatIsNoJsonObject(String text) {
        refused(text)
                .hasMessageContaining("JSON object")
                .hasMessageNotContainingAny("Source", "java.", "Token.");
    }

    @Test
    void letsAChildInheritWhatItLeavesOut() {
        var parent =
                kv(
                        """
                        {"kv_connector": "MultiConnector", "kv_role": "kv_consumer", "engine_id": "e1", "kv_ip": "10.0.0.2"}\
                        """);

        var child =
                ConnectorConfigReader.readChild(
                        Family.KV,
                        "connectors[0]",
                        parent,
                        Map.of("kv_connector", "DiskConnector", "name", "d", "kv_port", 5L),
                        "name");

        assertThat(child.connector()).isEqualTo("DiskConnector");
        assertThat(child.role()).isEqualTo(KvRole.CONSUMER);
        assertThat(child.engineId()).isEqualTo("e1");
        assertThat(child.ip()).isEqualTo("10.0.0.2");
        assertThat(child.port()).isEqualTo(5);
        assertThat(child.extra()).isEmpty();
    }

    private static ConnectorConfig kv(String json) {
        return ConnectorConfigReader.read(Family.KV, json);
    }

    private static AbstractThrowableAssert<?, ? extends Throwable> refused(String json) {
        return assertThatThrownBy(() -> kv(json))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.BAD_CONFIG));
    }
}
