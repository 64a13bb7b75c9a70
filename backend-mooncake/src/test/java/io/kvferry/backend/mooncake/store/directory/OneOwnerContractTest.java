// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.directory;

/// The same with one owner, which is asked everything.
class OneOwnerContractTest extends DirectoryStoreContractTest {
    @Override
    protected int count() {
        return 1;
    }
}
