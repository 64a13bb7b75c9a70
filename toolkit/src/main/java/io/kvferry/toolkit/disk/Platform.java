// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.List;
import java.util.Locale;

/// Chooses the [FileCalls] of this platform.
final class Platform {
    private static final Logger LOG = LoggerFactory.getLogger(Platform.class);

    private Platform() {}

    /// System calls on 64-bit Linux, file channels elsewhere or where native access is forbidden.
    static FileCalls fileCalls() {
        boolean linux = System.getProperty("os.name").toLowerCase(Locale.ROOT).contains("linux");
        if (!linux || !List.of("amd64", "aarch64").contains(System.getProperty("os.arch"))) {
            return new ChannelFileCalls();
        }
        try {
            return new PosixFileCalls();
        } catch (ExceptionInInitializerError | NoClassDefFoundError e) {
            LOG.warn(
                    "libc cannot be called ({}); files go through FileChannel, which allocates per file."
                            + " Start Java with --enable-native-access=ALL-UNNAMED",
                    String.valueOf(e.getCause()));
            return new ChannelFileCalls();
        }
    }
}
