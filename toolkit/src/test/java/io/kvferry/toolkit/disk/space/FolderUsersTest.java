// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk.space;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.toolkit.disk.FileCalls;

import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Files;
import java.nio.file.Path;

class FolderUsersTest {
    @TempDir Path folder;

    @Test
    void tellsWhetherOthersHaveTheFolderOpen() throws Exception {
        var calls = FileCalls.ofPlatform();
        Assumptions.assumeTrue(calls.gatherLimit() > 0, "needs flock of Linux");
        Path file = folder.resolve("users");
        try (var one = new FolderUsers(calls, file)) {
            assertThat(one.others()).isFalse();
            try (var two = new FolderUsers(calls, file)) {
                for (int i = 0; i < 3; i++) {
                    assertThat(one.others()).isTrue();
                    assertThat(two.others()).isTrue();
                }
            }
            assertThat(one.others()).isFalse();
            Files.delete(file);
            try (var later = new FolderUsers(calls, file)) {
                one.reopen();
                assertThat(one.others()).isTrue();
                assertThat(later.others()).isTrue();
            }
        }
    }

    @Test
    void takesOthersToBeThereWhereItCannotTell() {
        try (var users = new FolderUsers(FileCalls.ofPlatform(), folder.resolve("absent/users"))) {
            assertThat(users.others()).isTrue();
        }
    }
}
