// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.store;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Path;
import java.util.List;

/// The validation run in short: conversations over an owner process whose memory is a small part of
/// what they say.
class StoreValidationTest {
    private static final String CONVERSATIONS = "32";

    @TempDir Path folder;

    @Test
    void mostReadsComeFromDiskAndNoneFails() throws Exception {
        var shape = List.of(CONVERSATIONS, "3", "4", "512", "4", "20us");
        var run = StoreValidation.round(folder, shape, "4MiB", "8mb", false);
        assertThat(run.troubles(CONVERSATIONS)).as("%s", run).isEmpty();
        assertThat(run.lines()).as("lines of the tier log").isPositive();
    }
}
