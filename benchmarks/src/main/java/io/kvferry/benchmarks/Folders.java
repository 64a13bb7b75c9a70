// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;

/// What benchmarks do with folders of their own.
public final class Folders {
    private Folders() {}

    /// Deletes a folder and all that is in it.
    public static void delete(Path folder) throws IOException {
        if (!Files.exists(folder)) {
            return;
        }
        try (var all = Files.walk(folder)) {
            for (var path : all.sorted(Comparator.reverseOrder()).toList()) {
                Files.deleteIfExists(path);
            }
        }
    }
}
