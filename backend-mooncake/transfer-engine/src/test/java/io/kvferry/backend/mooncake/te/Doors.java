// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

/// What tests of other packages need to know of an engine's ports.
public final class Doors {
    private Doors() {}

    public static int dataPort(JavaTransferEngine engine) {
        return DataPortTest.dataPort(engine);
    }
}
