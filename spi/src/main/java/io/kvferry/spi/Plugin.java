// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi;

import io.kvferry.spi.config.OptionSchema;

import java.util.List;

/// Common base of the providers found by [java.util.ServiceLoader]: name, version, options,
/// availability.
///
/// The host calls these methods any number of times, before and without opening anything, also for
/// plugins that are not selected. None of them may touch the network, start a thread, load a native
/// library for good or throw.
///
/// Threading: any thread.
public interface Plugin {
    /// The name by which a configuration selects this plugin. Unique among all plugins of one kind;
    /// case sensitive.
    String name();

    /// Other names for the same plugin, such as those of earlier releases.
    default List<String> aliases() {
        return List.of();
    }

    /// One line for `kvferry plugins`.
    String description();

    /// The SPI versions this build works with; checked before anything else is called on the
    /// provider. Write the numbers of the SPI you compiled against: `SpiVersion.Range.from(1, 0)`.
    SpiVersion.Range spiVersions();

    /// The options it understands. The host rejects all others before it opens the plugin.
    OptionSchema options();

    /// Whether this machine has what the plugin needs; says why not and how to get it. No side
    /// effects.
    default Availability availability() {
        return new Availability.Available("");
    }

    /// Findings about this machine for `kvferry doctor`: libraries, devices, kernel settings,
    /// tools, each with the way to get it. Called by a person's command only, so it may run a short
    /// probe (a second at most) that leaves nothing behind; loads no native library for good and
    /// never throws.
    default List<Finding> diagnose() {
        return List.of();
    }
}
