// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

class AlignedStagingTest {
    private static final long MIB = 1 << 20;

    @ParameterizedTest
    @ValueSource(longs = {1, 4096, 4097, MIB, MIB + 4096, 2 * MIB, 4 * MIB + 36_864})
    void growsToWhatIsAskedForAndBeginsAtAPage(long bytes) {
        try (var staging = new AlignedStaging(1)) {
            staging.ensure(bytes);
            assertThat(staging.memory().byteSize())
                    .isGreaterThanOrEqualTo(bytes)
                    .satisfies(size -> assertThat(size % AlignedStaging.ALIGNMENT).isZero());
            assertThat(staging.memory().address() % AlignedStaging.ALIGNMENT).isZero();
            staging.memory().fill((byte) 7);
            assertThat(staging.view(bytes - 1, bytes).get()).isEqualTo((byte) 7);
            var before = staging.memory();
            staging.ensure(bytes);
            assertThat(staging.memory()).as("large enough").isSameAs(before);
        }
    }

    @Test
    void aFileOfAQuarterMebibyteGoesThroughOneHugePage() throws IOException {
        var huge = Path.of("/sys/kernel/mm/transparent_hugepage/enabled");
        assumeTrue(
                Files.isReadable(huge) && !Files.readString(huge).contains("[never]"),
                "huge pages on request, by Linux's /sys");
        try (var staging = new AlignedStaging(MIB / 4 + 4096)) {
            assertThat(staging.memory().address() % (2 * MIB)).isZero();
            assertThat(staging.memory().byteSize()).isEqualTo(2 * MIB);
        }
    }
}
