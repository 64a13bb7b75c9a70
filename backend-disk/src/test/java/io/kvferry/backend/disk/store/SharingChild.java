// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.toolkit.disk.FileCalls;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;

/// What the child JVMs of [SharedQuotaTest] run: each saves prompts into a store at its quota that
/// others use too.
///
/// A child writes at most [#MOST_UNSEEN] bytes between two scans of the folder: it waits for the
/// next scan, which its store starts by itself. This bounds what the others do not know, however
/// fast the disk is.
public final class SharingChild {
    static final long FILE_BYTES = 8192; // header and payload of a small block

    /// Files of one prompt: as many as make a look due, and one.
    static final int PROMPT = 21;

    static final long SHARE_BYTES = (PROMPT - 1) * FILE_BYTES;
    static final long QUOTA_BYTES = 32 * SHARE_BYTES;

    /// A share; one file, with which the look becomes due; and one that was being saved when the
    /// look before began.
    static final long MOST_UNSEEN = SHARE_BYTES + 2 * FILE_BYTES;

    private final BlockStore store;
    private int scans;
    private long unseen;

    private SharingChild(BlockStore store) {
        this.store = store;
        this.scans = store.core().scans();
    }

    /// @param args root, name; each line of the input asks for one more prompt, which is answered
    ///   with a line when it is saved
    public static void main(String[] args) throws IOException {
        try (var store =
                        BlockStore.open(
                                config(Path.of(args[0])),
                                StoreListener.NONE,
                                FileCalls.ofPlatform());
                var in =
                        new BufferedReader(
                                new InputStreamReader(System.in, StandardCharsets.UTF_8));
                var out = new PrintWriter(System.out, true, StandardCharsets.UTF_8)) {
            var child = new SharingChild(store);
            out.println("ready");
            int round = 0;
            while (in.readLine() != null) {
                child.save(prompt(args[1], round++));
                out.println("saved");
            }
        }
    }

    private void save(List<BlockKey> prompt) {
        for (var key : prompt) {
            var result = new StoreDriver(store).save(key, StoreDriver.block(key.depth(), 100));
            if (result != BlockResult.Done.STORED) {
                throw new IllegalStateException(result.toString());
            }
            unseen = looked() ? FILE_BYTES : unseen + FILE_BYTES;
            if (unseen >= MOST_UNSEEN) {
                awaitLook();
            }
        }
    }

    /// Whether the store has looked at the folder since the last question.
    private boolean looked() {
        int before = scans;
        scans = store.core().scans();
        return scans != before;
    }

    private void awaitLook() {
        long limit = System.nanoTime() + StoreDriver.PATIENCE.toNanos();
        while (!looked()) {
            if (limit - System.nanoTime() < 0) {
                throw new IllegalStateException("the store did not look at the folder");
            }
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(5));
        }
        unseen = 0;
    }

    static List<BlockKey> prompt(String name, int round) {
        return IntStream.range(0, PROMPT)
                .mapToObj(i -> BlockKey.of(name + " " + round + "/" + i, i))
                .toList();
    }

    static StoreConfig config(Path root) {
        return StoreDriver.config(root).withQuota(QUOTA_BYTES, 1, 1);
    }

    static Process start(Path root, String name) throws IOException {
        var command =
                new ArrayList<>(
                        List.of(
                                ProcessHandle.current().info().command().orElseThrow(),
                                "--enable-native-access=ALL-UNNAMED",
                                "-Xshare:auto",
                                "-XX:TieredStopAtLevel=1",
                                "-XX:+UseSerialGC",
                                "-cp",
                                System.getProperty(
                                        "surefire.test.class.path",
                                        Objects.requireNonNull(
                                                System.getProperty("java.class.path"))),
                                SharingChild.class.getName(),
                                root.toString(),
                                name));
        return new ProcessBuilder(command)
                .redirectError(ProcessBuilder.Redirect.to(new File("/dev/null")))
                .start();
    }
}
