// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.discovery;

import io.kvferry.spi.Plugin;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.OptionSchema;

/// A kind of plugin for tests; real kinds are found in the same way.
public interface Greeter extends Plugin {
    String greet();

    @Override
    default String description() {
        return "greets";
    }

    @Override
    default SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    default OptionSchema options() {
        return OptionSchema.NONE;
    }
}
