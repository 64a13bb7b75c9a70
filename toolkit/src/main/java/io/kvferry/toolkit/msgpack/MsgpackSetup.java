// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.msgpack;

/// Makes msgpack-core keep to ByteBuffer. By default it reaches for `sun.misc.Unsafe`, for which
/// JDK 24 and later print a warning and which a later JDK will not have. The property counts when
/// msgpack's classes load, so both users of the library call this first; a value that the operator
/// set stays.
public final class MsgpackSetup {
    private static final String PROPERTY = "msgpack.universal-buffer";

    private MsgpackSetup() {}

    public static void apply() {
        if (System.getProperty(PROPERTY) == null) {
            System.setProperty(PROPERTY, "true");
        }
    }
}
