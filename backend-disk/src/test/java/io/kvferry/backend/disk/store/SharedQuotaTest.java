// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.toolkit.disk.FileCalls;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;

/// Several processes that save into one folder at its quota. Each relies on its own catalog, so
/// together they may exceed the quota by what each writes between two scans.
class SharedQuotaTest {
    private static final int PROCESSES = 3;

    /// In which each process saves a thirty-second of the quota; without looks they would exceed
    /// the bound in the second.
    private static final int ROUNDS = 5;

    @TempDir Path root;

    @Test
    @Timeout(300)
    void exceedIsBoundedAndPrefixesStay() throws Exception {
        var config = StoreDriver.looking(SharingChild.config(root));
        var old =
                IntStream.range(
                                0,
                                (int)
                                        (SharingChild.QUOTA_BYTES
                                                / SharingChild.FILE_BYTES
                                                / SharingChild.PROMPT))
                        .mapToObj(i -> SharingChild.prompt("old", i))
                        .toList();
        long most = PROCESSES * SharingChild.MOST_UNSEEN;
        var children = new ArrayList<Process>();
        try (var store = BlockStore.open(config, StoreListener.NONE, FileCalls.ofPlatform())) {
            fill(store, old);
            for (int i = 0; i < PROCESSES; i++) {
                children.add(SharingChild.start(root, "child " + i));
            }
            expect(children, "ready");
            for (int round = 0; round < ROUNDS; round++) {
                for (var child : children) { // all at the same time
                    child.outputWriter(StandardCharsets.UTF_8).append('\n').flush();
                }
                expect(children, "saved");
                assertThat(StoreDriver.diskBytes(config))
                        .as("round %d", round)
                        .isBetween(
                                SharingChild.QUOTA_BYTES - most, SharingChild.QUOTA_BYTES + most);
                for (int i = 0; i < PROCESSES; i++) {
                    var newest = SharingChild.prompt("child " + i, round);
                    assertThat(new StoreDriver(store).locate(newest)).isEqualTo(newest.size());
                }
            }
            for (var child : children) { // so that none evicts any more
                child.destroyForcibly().waitFor();
            }
            int usable = 0;
            for (var prompt : old) {
                int prefix = new StoreDriver(store).locate(prompt);
                assertThat(prefix).as("files of a usable prefix").isEqualTo(there(config, prompt));
                usable += prefix;
            }
            assertThat(usable).as("of those that were there before").isPositive();
        } finally {
            children.forEach(Process::destroyForcibly);
        }
    }

    /// Up to the quota, so that every save of the others replaces something.
    private static void fill(BlockStore store, List<List<BlockKey>> prompts) {
        var driver = new StoreDriver(store);
        for (var prompt : prompts) {
            for (var key : prompt) {
                assertThat(driver.save(key, StoreDriver.block(key.depth(), 100)))
                        .isEqualTo(BlockResult.Done.STORED);
            }
        }
        for (var prompt : prompts) { // so that no file is in use less lately than a deeper one
            assertThat(driver.locate(prompt)).isEqualTo(prompt.size());
        }
    }

    private static int there(StoreConfig config, List<BlockKey> prompt) {
        return (int)
                prompt.stream().filter(key -> Files.exists(StoreDriver.file(config, key))).count();
    }

    private static void expect(List<Process> children, String word) throws IOException {
        for (var child : children) {
            assertThat(child.inputReader(StandardCharsets.UTF_8).readLine()).isEqualTo(word);
        }
    }
}
