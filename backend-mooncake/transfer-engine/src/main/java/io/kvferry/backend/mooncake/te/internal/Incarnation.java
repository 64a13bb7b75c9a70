// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal;

import java.security.SecureRandom;
import java.util.HexFormat;

/// The random id of one start of an engine: 128 bits as hex, and the first half of them as a number
/// for frames.
public final class Incarnation {
    private Incarnation() {}

    public static String draw() {
        byte[] bits = new byte[16];
        new SecureRandom().nextBytes(bits);
        return HexFormat.of().formatHex(bits);
    }

    public static long shortForm(String incarnation) {
        return HexFormat.fromHexDigitsToLong(incarnation, 0, 16);
    }
}
