// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.command;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Plugin;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.command.CommandProvider;
import io.kvferry.tck.PluginChecks;

import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.List;
import java.util.ServiceLoader;

/// The contract of a command as JUnit tests: what the host relies on before it runs it. Subclass it
/// and name the provider.
public abstract class CommandContract {
    /// Options that the host adds to every command.
    private static final List<String> OF_THE_HOST =
            List.of("help", "version", "json", "plugin-folder", "plugin-dir", "stop-with-stdin");

    /// The provider under test.
    protected abstract CommandProvider provider();

    @Test
    void itIsFoundByServiceLoader() {
        assertThat(
                        ServiceLoader.load(
                                CommandProvider.class, provider().getClass().getClassLoader()))
                .extracting(Plugin::name)
                .contains(provider().name());
    }

    @Test
    void itsNameIsOneOrTwoLowerCaseWords() {
        assertThat(provider().name()).matches("[a-z][a-z0-9-]*( [a-z][a-z0-9-]*)?");
        assertThat(provider().aliases()).as("a command has one name").isEmpty();
    }

    @Test
    void itSaysWhatItIs() {
        assertThat(provider().description()).isNotBlank().doesNotContain("\n");
        assertThat(provider().spiVersions().accepts(SpiVersion.CURRENT)).isTrue();
        assertThat(provider().availability()).isEqualTo(provider().availability());
    }

    @Test
    void itsOptionsAreDistinctOnACommandLine() {
        var names = new ArrayList<String>();
        for (var option : provider().options().options()) {
            names.add(option.name().replace('_', '-'));
            assertThat(option.description()).as(option.name()).isNotBlank();
        }
        assertThat(names).doesNotHaveDuplicates().doesNotContainAnyElementsOf(OF_THE_HOST);
    }

    @Test
    void itsArgumentsHaveALabelAndADescription() {
        var arguments = provider().arguments();
        assertThat(arguments).isEqualTo(provider().arguments());
        if (arguments.most() > 0) {
            assertThat(arguments.label()).isNotBlank();
            assertThat(arguments.description()).isNotBlank();
        }
    }

    @Test
    void itsFindingsComeWithARemedyWhereSomethingIsAbsent() {
        PluginChecks.diagnoses(provider());
    }
}
