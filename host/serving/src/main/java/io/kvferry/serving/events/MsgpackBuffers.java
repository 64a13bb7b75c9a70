// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.events;

/// Makes msgpack-core keep to ByteBuffer instead of `sun.misc.Unsafe`, for which JDK 24 and later
/// print a warning. The property counts when msgpack's classes load; a value that the operator set
/// stays.
final class MsgpackBuffers {
    private static final String PROPERTY = "msgpack.universal-buffer";

    private MsgpackBuffers() {}

    static void useNoUnsafe() {
        if (System.getProperty(PROPERTY) == null) {
            System.setProperty(PROPERTY, "true");
        }
    }
}
