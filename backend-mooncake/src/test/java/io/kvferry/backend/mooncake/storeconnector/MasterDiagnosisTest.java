// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static io.kvferry.tck.FreePorts.freePort;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.master.StoreMaster;
import io.kvferry.spi.Finding;

import org.junit.jupiter.api.Test;

import java.util.Map;

/// What `kvferry doctor` says of a master that the environment names.
class MasterDiagnosisTest {
    @Test
    void aMasterThatDoesNotAnswerIsNamed() throws Exception {
        String address = "127.0.0.1:" + freePort();
        var environment = Map.of("MOONCAKE_MASTER", "master://" + address);
        assertThat(StoreAccess.diagnoseMaster(environment))
                .hasValueSatisfying(finding -> {
                    assertThat(finding.state()).isEqualTo(Finding.State.OPTIONAL);
                    assertThat(finding.found()).contains(address).contains("does not answer");
                    assertThat(finding.remedy()).contains("kvferry master");
                });
        assertThat(StoreAccess.diagnoseMaster(Map.of())).as("none is named").isEmpty();
        assertThat(StoreAccess.diagnoseMaster(Map.of("MOONCAKE_MASTER", address)))
                .as("that is an owner")
                .isEmpty();
    }

    @Test
    void aMasterThatAnswersIsFound() {
        try (var master = StoreMaster.start(StoreMaster.Settings.local(0))) {
            var environment = Map.of("MOONCAKE_MASTER", "master://" + master.address());
            assertThat(StoreAccess.diagnoseMaster(environment))
                    .hasValueSatisfying(finding -> {
                        assertThat(finding.state()).isEqualTo(Finding.State.OK);
                        assertThat(finding.found()).contains("0 owners");
                    });
        }
    }
}
