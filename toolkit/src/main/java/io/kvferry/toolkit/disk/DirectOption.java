// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import java.nio.file.OpenOption;
import java.util.Arrays;
import java.util.Optional;

/// `com.sun.nio.file.ExtendedOpenOption.DIRECT`, by name: compiling against it is a warning on
/// every platform.
public final class DirectOption {
    private DirectOption() {}

    /// The option that opens a FileChannel with O_DIRECT; empty in a runtime without the module
    /// jdk.unsupported.
    public static Optional<OpenOption> find() {
        try {
            Object[] options =
                    Class.forName("com.sun.nio.file.ExtendedOpenOption").getEnumConstants();
            return Arrays.stream(options)
                    .filter(option -> option.toString().equals("DIRECT"))
                    .map(OpenOption.class::cast)
                    .findFirst();
        } catch (ClassNotFoundException _) {
            return Optional.empty();
        }
    }
}
