// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.List;

/// The block files under a folder that stores still write to.
public final class BlockFiles {
    private BlockFiles() {}

    /// What is renamed or deleted while the walk passes is left out: [Files#walk] would end with a
    /// NoSuchFileException.
    public static List<Path> under(Path folder) {
        var found = new ArrayList<Path>();
        try {
            Files.walkFileTree(
                    folder,
                    new SimpleFileVisitor<>() {
                        @Override
                        public FileVisitResult visitFile(Path file, BasicFileAttributes known) {
                            if (file.toString().endsWith(".kvb")) {
                                found.add(file);
                            }
                            return FileVisitResult.CONTINUE;
                        }

                        @Override
                        public FileVisitResult visitFileFailed(Path file, IOException e)
                                throws IOException {
                            if (e instanceof NoSuchFileException) {
                                return FileVisitResult.CONTINUE;
                            }
                            throw e;
                        }
                    });
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return found;
    }
}
