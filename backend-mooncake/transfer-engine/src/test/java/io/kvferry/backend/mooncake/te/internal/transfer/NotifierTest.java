// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.Notification;
import io.kvferry.backend.mooncake.te.internal.handshake.HandshakeClient;
import io.kvferry.backend.mooncake.te.internal.metadata.SegmentDirectory;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;

class NotifierTest {
    private static final Duration SOON = Duration.ofSeconds(30);
    private static final Notification ONE = new Notification("a", "1");
    private static final Notification TWO = new Notification("b", "2");

    static Notifier notifier(int most, long mostBytes) {
        var client = new HandshakeClient(SOON, SOON, 1 << 20);
        var directory = new SegmentDirectory(EngineConfig.defaults(), client, () -> new byte[0]);
        return new Notifier(directory, client, most, mostBytes);
    }

    private static FutureTask<List<Notification>> waiting(Notifier notifier) {
        var task = new FutureTask<>(() -> notifier.await(8, Deadline.in(Duration.ofHours(1))));
        Thread.ofPlatform().daemon().start(task);
        return task;
    }

    @Test
    void closingWakesWhoWaits() throws Exception {
        var notifier = notifier(4, 1 << 20);
        var first = waiting(notifier);
        var second = waiting(notifier);
        notifier.close();
        assertThat(first.get(30, TimeUnit.SECONDS)).isEmpty();
        assertThat(second.get(30, TimeUnit.SECONDS)).isEmpty();
        assertThat(notifier.accept(ONE, "h")).isFalse();
        assertThat(waiting(notifier).get(30, TimeUnit.SECONDS)).isEmpty();
    }

    @Test
    void whatCameBeforeTheClosingIsTaken() {
        var notifier = notifier(4, 1 << 20);
        assertThat(notifier.accept(ONE, "h")).isTrue();
        notifier.close();
        assertThat(notifier.await(8, Deadline.in(SOON))).containsExactly(ONE);
    }

    @Test
    void aNotificationWakesOneThatWaitsAndTheOldestComeFirst() throws Exception {
        var notifier = notifier(4, 1 << 20);
        var waiting = waiting(notifier);
        assertThat(notifier.accept(ONE, "h")).isTrue();
        assertThat(waiting.get(30, TimeUnit.SECONDS)).containsExactly(ONE);
        assertThat(notifier.accept(ONE, "h")).isTrue();
        assertThat(notifier.accept(TWO, "h")).isTrue();
        assertThat(notifier.take(1)).containsExactly(ONE);
        assertThat(notifier.take(8)).containsExactly(TWO);
        assertThat(notifier.await(8, Deadline.in(Duration.ZERO))).isEmpty();
    }

    @Test
    void aFullInboxRefusesByCountAndByBytesAndHasRoomAgainWhenTaken() {
        var few = notifier(1, 1 << 20);
        assertThat(few.accept(ONE, "h")).isTrue();
        assertThat(few.accept(TWO, "h")).isFalse();
        assertThat(few.take(8)).containsExactly(ONE);
        assertThat(few.accept(TWO, "h")).isTrue();

        var small = notifier(100, 4096);
        var large = new Notification("a", "x".repeat(1500));
        assertThat(small.accept(large, "h")).isTrue();
        assertThat(small.accept(large, "h")).isFalse();
        assertThat(small.take(8)).containsExactly(large);
        assertThat(small.accept(large, "h")).isTrue();
    }

    @Test
    void oneHostThatFillsTheInboxLeavesRoomForAnother() {
        var notifier = notifier(4, 1 << 20);
        int taken = 0;
        while (notifier.accept(ONE, "h")) {
            taken++;
        }
        assertThat(taken).isEqualTo(4);
        assertThat(notifier.accept(TWO, "other")).isTrue();
    }
}
