// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.command;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Plugin;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.command.CommandProvider;
import io.kvferry.tck.PluginChecks;

import org.junit.jupiter.api.DisplayName;
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
    @DisplayName("K1 it is found by ServiceLoader")
    void itIsFoundByServiceLoader() {
        assertThat(
                        ServiceLoader.load(
                                CommandProvider.class, provider().getClass().getClassLoader()))
                .extracting(Plugin::name)
                .contains(provider().name());
    }

    @Test
    @DisplayName("K2 its name is one or two lower-case words")
    void itsNameIsOneOrTwoLowerCaseWords() {
        assertThat(provider().name()).matches("[a-z][a-z0-9-]*( [a-z][a-z0-9-]*)?");
        assertThat(provider().aliases()).as("a command has one name").isEmpty();
    }

    @Test
    @DisplayName("K3 it says what it is")
    void itSaysWhatItIs() {
        assertThat(provider().description()).isNotBlank().doesNotContain("\n");
        assertThat(provider().spiVersions().accepts(SpiVersion.CURRENT)).isTrue();
        assertThat(provider().availability()).isEqualTo(provider().availability());
    }

    @Test
    @DisplayName("K4 its options are distinct on a command line")
    void itsOptionsAreDistinctOnACommandLine() {
        var names = new ArrayList<String>();
        for (var option : provider().options().options()) {
            names.add(option.name().replace('_', '-'));
            assertThat(option.description()).as(option.name()).isNotBlank();
        }
        assertThat(names).doesNotHaveDuplicates().doesNotContainAnyElementsOf(OF_THE_HOST);
    }

    @Test
    @DisplayName("K5 its arguments have a label and a description")
    void itsArgumentsHaveALabelAndADescription() {
        var arguments = provider().arguments();
        assertThat(arguments).isEqualTo(provider().arguments());
        if (arguments.most() > 0) {
            assertThat(arguments.label()).isNotBlank();
            assertThat(arguments.description()).isNotBlank();
        }
    }

    @Test
    @DisplayName("K6 its findings come with a remedy where something is absent")
    void itsFindingsComeWithARemedyWhereSomethingIsAbsent() {
        PluginChecks.diagnoses(provider());
    }
}
