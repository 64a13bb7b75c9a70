// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Finding;
import io.kvferry.spi.Finding.State;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

@SuppressWarnings("NullAway.Init")
class CrossMemoryCheckTest {
    private static final String ALL = "000001ffffffffff";
    private static final String ALL_BUT_PTRACE = "000001fffff7ffff";

    @TempDir Path folder;

    private Finding finding(String scope, String capabilities) throws IOException {
        Path status = folder.resolve("status");
        Files.writeString(status, "Name:\tjava\nCapPrm:\t" + ALL + "\nCapEff:\t" + capabilities);
        Path setting = folder.resolve("scope");
        if (!scope.isEmpty()) {
            Files.writeString(setting, scope + "\n");
        }
        return CrossMemoryCheck.of(setting, status);
    }

    @Test
    void aKernelWithoutYamaAsksForOneUser() throws IOException {
        assertThat(finding("", ALL_BUT_PTRACE).state()).isEqualTo(State.OK);
        assertThat(finding("0", ALL_BUT_PTRACE).state()).isEqualTo(State.OK);
    }

    @Test
    void aScopeAsksForTheCapability() throws IOException {
        assertThat(finding("1", ALL).state()).isEqualTo(State.OK);
        assertThat(finding("2", ALL).state()).isEqualTo(State.OK);
        assertThat(finding("3", ALL).state()).isEqualTo(State.OPTIONAL);
    }

    @Test
    void whatIsMissingComesWithItsRemedy() throws IOException {
        var one = finding("1", ALL_BUT_PTRACE);
        assertThat(one.state()).isEqualTo(State.OPTIONAL);
        assertThat(one.found()).contains("ptrace_scope is 1");
        assertThat(one.remedy()).contains("cross_memory_ptracer", "CAP_SYS_PTRACE");
        assertThat(finding("2", ALL_BUT_PTRACE).remedy())
                .contains("CAP_SYS_PTRACE")
                .doesNotContain("cross_memory_ptracer");
    }

    @Test
    void elsewhereThanOnLinuxThereIsNone() {
        assertThat(CrossMemoryCheck.of(folder.resolve("scope"), folder.resolve("status")).state())
                .isEqualTo(State.OPTIONAL);
    }
}
