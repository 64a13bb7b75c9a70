// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import io.kvferry.spi.command.CommandProvider;
import io.kvferry.tck.command.CommandContract;

class MetadataServerCommandTest extends CommandContract {
    @Override
    protected CommandProvider provider() {
        return new MetadataServerCommand();
    }
}
