// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Finding;
import io.kvferry.spi.Plugin;

/// Checks that hold for plugins of every kind.
public final class PluginChecks {
    private PluginChecks() {}

    /// What a plugin says of the machine is complete, and says the same when asked again.
    public static void diagnoses(Plugin plugin) {
        var findings = plugin.diagnose();
        assertThat(findings)
                .extracting(Finding::what)
                .doesNotHaveDuplicates()
                .allMatch(w -> !w.isBlank());
        assertThat(findings)
                .filteredOn(finding -> finding.state() == Finding.State.MISSING)
                .extracting(Finding::remedy)
                .allMatch(remedy -> !remedy.isBlank());
        assertThat(plugin.diagnose())
                .extracting(Finding::what, Finding::state)
                .isEqualTo(
                        findings.stream()
                                .map(f -> org.assertj.core.groups.Tuple.tuple(f.what(), f.state()))
                                .toList());
    }
}
