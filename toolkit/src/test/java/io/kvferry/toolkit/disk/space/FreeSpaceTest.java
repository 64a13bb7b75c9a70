// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk.space;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Path;
import java.time.Duration;

/// What a full file system is told, at times that the test gives.
class FreeSpaceTest {
    private static final long BEGIN = Long.MAX_VALUE - 5; // the clock may pass its end
    private static final long PAUSE = Duration.ofSeconds(30).toNanos();

    @TempDir Path folder;

    @Test
    void triesToDeleteAgainAfterAWhile() {
        var space = new FreeSpace(folder, 1);
        assertThat(space.deletingMayHelp(BEGIN)).isTrue();
        space.deletingDidNotHelp(BEGIN);
        assertThat(space.deletingMayHelp(BEGIN)).isFalse();
        assertThat(space.deletingMayHelp(BEGIN + PAUSE - 1)).isFalse();
        assertThat(space.deletingMayHelp(BEGIN + PAUSE)).isTrue();
        space.deletingDidNotHelp(BEGIN + PAUSE);
        assertThat(space.deletingMayHelp(BEGIN + PAUSE + 1)).isFalse();
    }

    @Test
    void triesToDeleteAgainOnceAFileWasWritten() {
        var space = new FreeSpace(folder, 1);
        space.deletingDidNotHelp(BEGIN);
        space.written();
        assertThat(space.deletingMayHelp(BEGIN)).isTrue();
    }

    @Test
    void withoutAReserveNothingIsDeletedForRoom() {
        var space = new FreeSpace(folder, 0);
        assertThat(space.deletingMayHelp(BEGIN)).isFalse();
        assertThat(space.shortage(Long.MAX_VALUE, BEGIN)).isZero();
    }

    @Test
    void tellsByHowMuchAFileWouldEatIntoTheReserve() {
        long reserve = 1L << 60; // more than there is
        var space = new FreeSpace(folder, reserve);
        long shortage = space.shortage(1000, BEGIN);
        assertThat(shortage).isPositive().isLessThan(reserve + 1000);
    }
}
