// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.composite.CompositeCapabilities.Member;
import io.kvferry.multiconnector.config.Family;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.tck.faults.ScriptedConnector;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/// Configuration of a composite, and what it can do by its children.
class CompositeOptionsTest {
    private static List<CompositeOptions.ChildConfig> children(Object... entries) {
        return options(Map.of("connectors", List.of(entries))).children();
    }

    private static CompositeOptions options(Map<String, Object> extra) {
        var config = ConnectorConfig.of("MultiConnector", KvRole.BOTH, "e1", extra);
        return CompositeOptions.read(
                Family.KV, "MultiConnector", config, CompositeOptions.SCHEMA.read("extra", extra));
    }

    @Test
    void namesChildrenByTheirConnectorAndCountsRepeats() {
        var disk = Map.of("kv_connector", "Disk");
        var named = Map.of("kv_connector", "Disk", "name", "Disk-2");

        assertThat(children(disk, disk, named, disk, Map.of("kv_connector", "P2p")))
                .extracting(CompositeOptions.ChildConfig::name)
                .containsExactly("Disk", "Disk-3", "Disk-2", "Disk-4", "P2p");
    }

    @Test
    void takesAnEngineIdInAChild() {
        assertThat(
                        children(
                                Map.of("kv_connector", "A", "engine_id", "other"),
                                Map.of("kv_connector", "B")))
                .extracting(child -> child.config().engineId())
                .containsExactly("other", "e1");
    }

    @Test
    void defaultsToVllmsPolicy() {
        var options = options(Map.of("connectors", List.of(Map.of("kv_connector", "A"))));

        assertThat(options.policy()).isEqualTo(LoadPolicy.FIRST_HIT);
        assertThat(options.namespacedParams()).isFalse();
        assertThat(options.failoverWait()).hasSeconds(2);
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            quoteCharacter = '`',
            value = {
                "{}                                                      | connectors is missing",
                "{'connectors': []}                                      | at least one connector configuration",
                "{'connectors': {'kv_connector': 'S'}}                   | at least one connector configuration",
                "{'connectors': ['S']}                                   | connectors[0]: expected a JSON object, got S",
                "{'connectors': [{'kv_role': 'kv_both'}]}                | connectors[0]: kv_connector is missing",
                "{'connectors': [{'kv_connector': 'S', 'kv_prot': 1}]}   | did you mean \"kv_port\"?",
                "{'connectors': [{'kv_connector': 'S', 'name': 'a/b'}]}  | name: expected letters",
                "{'connectors': [{'kv_connector': 'S', 'name': 'x'}, {'kv_connector': 'S', 'name': 'x'}]} | two children are named \"x\"",
                "{'connectors': [{'kv_connector': 'Absent'}]}            | kv_connector of MultiConnector/Absent: no KV connector is called \"Absent\"",
                "{'connectors': [{'kv_connector': 'S', 'kv_connector_extra_config': {'x': 1}}]} | kv_connector_extra_config of MultiConnector/S: unknown key \"x\"",
                "{'connectors': [{'kv_connector': 'S'}], 'load_policy': 'best'} | load_policy: expected one of [first-hit, longest-hit, compose]",
                "{'connectors': [{'kv_connector': 'S'}], 'conectors': []}       | did you mean \"connectors\"?",
            })
    void saysWhatIsWrongAndWhere(String extra, String message) {
        var json =
                """
                {"kv_connector": "MultiConnector", "kv_role": "kv_both", "kv_connector_extra_config": %s}\
                """
                        .formatted(extra.replace('\'', '"'));
        var catalog =
                PluginCatalog.ofClassPath()
                        .with(
                                KvConnectorProvider.class,
                                new ScriptedConnector("S", ConnectorCapabilities.of(Feature.SAVE)));
        try (var kvferry = Kvferry.open(catalog, EventSink.NONE)) {
            assertThatThrownBy(() -> kvferry.kv(json))
                    .isInstanceOf(KvFerryException.class)
                    .hasMessageContaining(message);
        }
    }

    @Test
    void saysHowToOpenACompositeWhenTheHostOffersNoFactory() {
        var config =
                ConnectorConfig.of(
                        "MultiConnector",
                        KvRole.BOTH,
                        "e1",
                        Map.of("connectors", List.of(Map.of("kv_connector", "S"))));

        assertThatThrownBy(
                        () -> new MultiConnectorProvider().capabilities(config, HostServices.NONE))
                .hasMessageContaining("io.kvferry.multiconnector.Kvferry");
    }

    @Test
    void claimsWhatAnyChildCanAndWhatAllMust() {
        var capabilities =
                of(
                        member(
                                "A",
                                Feature.ASYNC_LOAD,
                                Feature.SAVE,
                                Feature.SEVERAL_GROUPS,
                                Feature.HOLD),
                        member(
                                "B",
                                Feature.SYNC_LOAD,
                                Feature.LAYERWISE_LOAD,
                                Feature.LAYERWISE_SAVE,
                                Feature.EVENTS));

        assertThat(capabilities.features())
                .isEqualTo(
                        Set.of(
                                Feature.ASYNC_LOAD,
                                Feature.SAVE,
                                Feature.HOLD,
                                Feature.LAYERWISE_SAVE,
                                Feature.EVENTS));
    }

    @Test
    void isWhatItsOnlyChildIs() {
        assertThat(of(member("A", Feature.values())).features())
                .isEqualTo(Set.of(Feature.values()));
    }

    @Test
    void refusesChildrenThatNeedDifferentLayouts() {
        assertThat(
                        of(layout("A", KvLayout.LBHNC), member("B"), layout("C", KvLayout.LBHNC))
                                .requiredLayout())
                .contains(KvLayout.LBHNC);
        assertThatThrownBy(() -> of(layout("A", KvLayout.LBHNC), layout("B", KvLayout.LBNHC)))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.INCOMPATIBLE))
                .hasMessageContaining("child A needs KV layout LBHNC, child B needs LBNHC");
    }

    private static ConnectorCapabilities of(Member... members) {
        var all = List.of(members);
        var sync = new boolean[members.length];
        for (int i = 0; i < sync.length; i++) {
            sync[i] = CompositeCapabilities.staysSync(all, i);
        }
        return CompositeCapabilities.of("MultiConnector", all, sync);
    }

    private static Member member(String name, Feature... features) {
        return new Member(name, ConnectorCapabilities.of(features), true);
    }

    private static Member layout(String name, KvLayout layout) {
        return new Member(name, new ConnectorCapabilities(Set.of(), Optional.of(layout)), true);
    }
}
