// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.command;

import io.kvferry.spi.command.CommandProvider;
import io.kvferry.tck.command.CommandContract;

import org.junit.jupiter.api.Nested;

/// The commands as the host relies on them.
class StoreCommandsTest {
    @Nested
    class Owner extends CommandContract {
        @Override
        protected CommandProvider provider() {
            return new OwnerCommand();
        }
    }

    @Nested
    class Master extends CommandContract {
        @Override
        protected CommandProvider provider() {
            return new MasterCommand();
        }
    }

    @Nested
    class RunWithOwner extends CommandContract {
        @Override
        protected CommandProvider provider() {
            return new RunWithOwnerCommand();
        }
    }

    @Nested
    class Ls extends CommandContract {
        @Override
        protected CommandProvider provider() {
            return new StoreLsCommand();
        }
    }

    @Nested
    class Exists extends CommandContract {
        @Override
        protected CommandProvider provider() {
            return new StoreExistsCommand();
        }
    }

    @Nested
    class Get extends CommandContract {
        @Override
        protected CommandProvider provider() {
            return new StoreGetCommand();
        }
    }

    @Nested
    class ForgetOwner extends CommandContract {
        @Override
        protected CommandProvider provider() {
            return new StoreForgetOwnerCommand();
        }
    }
}
