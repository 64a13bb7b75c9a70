// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.testkit;

/// What `side_channel` is in tests that say nothing of it. One test class runs others with another
/// value.
public final class SideChannelOption {
    private static final String PROPERTY = "kvferry.test.side_channel";

    private SideChannelOption() {}

    /// The value of the option.
    public static String option() {
        return System.getProperty(PROPERTY, "auto");
    }

    /// The same for a child process.
    public static String flag() {
        return "-D" + PROPERTY + "=" + option();
    }

    public static void set(String value) {
        System.setProperty(PROPERTY, value);
    }

    public static void reset() {
        System.clearProperty(PROPERTY);
    }
}
