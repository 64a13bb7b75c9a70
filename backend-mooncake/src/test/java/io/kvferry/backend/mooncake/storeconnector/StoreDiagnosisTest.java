// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static io.kvferry.tck.FreePorts.freePort;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.master.StoreMaster;
import io.kvferry.backend.mooncake.store.remote.StoreOwner;
import io.kvferry.spi.Finding;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;

/// What `kvferry doctor` says of the store that the environment and Mooncake's file name.
class StoreDiagnosisTest {
    @TempDir Path folder;

    private Map<String, String> file(String json) throws Exception {
        Path file = Files.writeString(folder.resolve("mooncake.json"), json);
        return Map.of("MOONCAKE_CONFIG_PATH", file.toString());
    }

    @Test
    void theStoreThatTheFileNamesIsLookedAt() throws Exception {
        try (var owner = StoreOwner.start(StoreOwner.Settings.local(0, 1 << 20))) {
            var named =
                    file(
                            """
                            {"mode": "standalone-store", "master_server_address": "%s"}
                            """
                                    .formatted(owner.address()));
            assertThat(StoreDiagnosis.of(named))
                    .hasValueSatisfying(finding -> {
                        assertThat(finding.state()).isEqualTo(Finding.State.OK);
                        assertThat(finding.found()).contains(owner.address()).contains("answers");
                    });
        }
        assertThat(StoreDiagnosis.of(file("{}")))
                .hasValueSatisfying(finding -> assertThat(finding.found()).contains("in the JVM"));
        var cluster =
                file(
                        """
                        {"metadata_server": "http://m:8080/metadata", "master_server_address": "m:1"}
                        """);
        assertThat(StoreDiagnosis.of(cluster))
                .hasValueSatisfying(finding -> assertThat(finding.found()).contains("m:1"));
    }

    @Test
    void aFileThatIsNoneIsNamed() throws Exception {
        for (var named : List.of(file("{"), Map.of("MOONCAKE_CONFIG_PATH", folder + "/none"))) {
            assertThat(StoreDiagnosis.of(named))
                    .hasValueSatisfying(finding -> {
                        assertThat(finding.state()).isEqualTo(Finding.State.OPTIONAL);
                        assertThat(finding.found()).contains("MOONCAKE_CONFIG_PATH");
                        assertThat(finding.remedy()).contains("MooncakeStoreConnector");
                    });
        }
    }

    @Test
    void aMasterThatDoesNotAnswerIsNamed() throws Exception {
        String address = "127.0.0.1:" + freePort();
        var environment = Map.of("MOONCAKE_MASTER", "master://" + address);
        assertThat(StoreDiagnosis.of(environment))
                .hasValueSatisfying(finding -> {
                    assertThat(finding.state()).isEqualTo(Finding.State.OPTIONAL);
                    assertThat(finding.found()).contains(address).contains("does not answer");
                    assertThat(finding.remedy()).contains("kvferry master");
                });
        assertThat(StoreDiagnosis.of(Map.of())).as("none is named").isEmpty();
        assertThat(StoreDiagnosis.of(Map.of("MOONCAKE_MASTER", address)))
                .as("that is an owner")
                .hasValueSatisfying(finding -> {
                    assertThat(finding.state()).isEqualTo(Finding.State.OPTIONAL);
                    assertThat(finding.found()).contains(address).contains("does not answer");
                    assertThat(finding.remedy()).contains("kvferry owner");
                });
    }

    @Test
    void aMasterThatAnswersIsFound() {
        try (var master = StoreMaster.start(StoreMaster.Settings.local(0))) {
            var environment = Map.of("MOONCAKE_MASTER", "master://" + master.address());
            assertThat(StoreDiagnosis.of(environment))
                    .hasValueSatisfying(finding -> {
                        assertThat(finding.state()).isEqualTo(Finding.State.OK);
                        assertThat(finding.found()).contains("0 owners");
                    });
        }
    }
}
