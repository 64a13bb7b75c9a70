// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;

/// Files that are deleted, by several threads.
final class Deletions {
    private Deletions() {}

    /// Makes and deletes so many small files in a folder.
    static void make(Path folder, int count, int threads) throws Exception {
        each(threads, count, i -> Files.write(folder.resolve("deleted." + i), new byte[64]));
        each(threads, count, i -> Files.delete(folder.resolve("deleted." + i)));
    }

    /// Deletes the files below a folder whose names begin with `name` and a dot; answers the
    /// nanoseconds that it took.
    static long delete(Path folder, String name, int threads) throws Exception {
        List<Path> files;
        try (var all = Files.walk(folder)) {
            files =
                    all.filter(file -> file.getFileName().toString().startsWith(name + "."))
                            .toList();
        }
        long begun = System.nanoTime();
        each(threads, files.size(), i -> Files.delete(files.get(i)));
        return System.nanoTime() - begun;
    }

    @FunctionalInterface
    private interface FileAction {
        void apply(int i) throws IOException;
    }

    private static void each(int threads, int count, FileAction action) throws Exception {
        try (var pool = Executors.newFixedThreadPool(threads)) {
            var tasks = new ArrayList<Callable<Boolean>>();
            for (int t = 0; t < threads; t++) {
                int first = t;
                tasks.add(() -> {
                    for (int i = first; i < count; i += threads) {
                        action.apply(i);
                    }
                    return true;
                });
            }
            for (var done : pool.invokeAll(tasks)) {
                done.get();
            }
        }
    }
}
