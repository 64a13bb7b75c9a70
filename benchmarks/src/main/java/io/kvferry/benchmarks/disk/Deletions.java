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

    /// Makes and deletes so many small files, evenly divided among folders.
    static void make(List<Path> folders, int count, int threads) throws Exception {
        each(threads, count, i -> Files.write(deleted(folders, i), new byte[64]));
        each(threads, count, i -> Files.delete(deleted(folders, i)));
    }

    private static Path deleted(List<Path> folders, int i) {
        return folders.get(i % folders.size()).resolve("deleted." + i);
    }

    /// Deletes the files below folders whose names begin with `name` and a dot; answers the
    /// nanoseconds that it took.
    static long delete(List<Path> folders, String name, int threads) throws Exception {
        var files = new ArrayList<Path>();
        for (Path folder : folders) {
            try (var all = Files.walk(folder)) {
                all.filter(file -> file.getFileName().toString().startsWith(name + "."))
                        .forEach(files::add);
            }
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
