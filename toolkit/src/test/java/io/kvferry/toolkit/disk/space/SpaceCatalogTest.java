// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk.space;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

class SpaceCatalogTest {
    private static final long BYTES = 4096;
    private static final long SUPPRESSION = TimeUnit.SECONDS.toNanos(5);

    private final Recency recency = new Recency(60_000);
    private final SpaceCatalog catalog =
            new SpaceCatalog(100 * BYTES, 0, 0, 0, SUPPRESSION, recency);
    private final Victim victim = new Victim();

    private static KeyDigest key(String text) {
        return KeyDigest.ofKey(text.getBytes(StandardCharsets.UTF_8));
    }

    private void commit(KeyDigest digest, long stamp) {
        assertThat(catalog.reserve(BYTES)).isTrue();
        catalog.commit(digest, BYTES, 0, stamp);
    }

    private void assertReservesNothing() {
        long rest = 100 * BYTES - catalog.usedBytes();
        assertThat(catalog.reserve(rest)).as("all that files do not take").isTrue();
        catalog.release(rest);
    }

    private KeyDigest evict() {
        assertThat(catalog.oldest(victim)).isTrue();
        assertThat(catalog.evict(victim, 0)).isTrue();
        return victim.digest();
    }

    @Test
    void missesForTwiceAsLongEachTimeThatAReadFailsUntilOneDoesNot() {
        commit(key("a"), 1);
        long now = 0;
        long expected = SUPPRESSION;
        for (int failure = 0; failure < 20; failure++) {
            catalog.suppress(key("a"), now, now);
            catalog.suppress(key("a"), now, now + 1); // somebody else reports the same failure
            assertThat(catalog.mayContain(key("a"), now + expected - 1)).isFalse();
            assertThat(catalog.sighted(key("a"), BYTES, now, 1, catalog.lookBegins())).isTrue();
            assertThat(catalog.mayContain(key("a"), now + expected - 1))
                    .as("that it is there says nothing of its content")
                    .isFalse();
            now += expected;
            assertThat(catalog.mayContain(key("a"), now)).isTrue();
            expected = Math.min(2 * expected, SpaceCatalog.LONGEST_SUPPRESSION_NANOS);
        }
        assertThat(expected).isEqualTo(SpaceCatalog.LONGEST_SUPPRESSION_NANOS);
        catalog.suppress(key("a"), now, now);
        assertThat(catalog.read(key("a"), BYTES, now)).isTrue();
        assertThat(catalog.mayContain(key("a"), now)).isTrue();
        catalog.suppress(key("a"), now, now);
        assertThat(catalog.mayContain(key("a"), now + SUPPRESSION)).isTrue();
    }

    /// One that another process has saved, and that no scan has met.
    @Test
    void missesAFileThatItDidNotKnowWhenAReadFailed() {
        catalog.suppress(key("a"), 0, 0);
        assertThat(catalog.contains(key("a"))).as("nothing was read").isFalse();
        catalog.readFailed(key("a"), 0);
        catalog.suppress(key("a"), 0, 0);
        assertThat(catalog.presence(key("a"), 1)).isEqualTo(SpaceCatalog.Presence.SUPPRESSED);
        assertThat(catalog.presence(key("a"), SUPPRESSION))
                .as("it may be gone")
                .isEqualTo(SpaceCatalog.Presence.ABSENT);
        catalog.readFailed(key("b"), 0);
        catalog.markUnreadable(key("b"));
        assertThat(catalog.unreadable(key("b"))).isTrue();
        assertThat(catalog.usedBytes()).isZero();
        assertThat(catalog.sighted(key("a"), BYTES, 1, 1, catalog.lookBegins())).isTrue();
        assertThat(catalog.usedBytes()).isEqualTo(BYTES);
        assertThat(catalog.mayContain(key("a"), SUPPRESSION)).isTrue();
    }

    @Test
    void takesAFileThatASaveHasFoundForThereAlthoughItOnlyKnewOfAFailure() {
        catalog.readFailed(key("a"), 0);
        catalog.suppress(key("a"), 0, 0);
        catalog.confirm(key("a"), 0, 1, 1);
        assertThat(catalog.mayContain(key("a"), 1)).isTrue();
    }

    @Test
    void remembersFailuresOfAFileThatASaveHasFoundThere() {
        commit(key("a"), 1);
        catalog.suppress(key("a"), 0, 0);
        catalog.confirm(key("a"), 0, 1, 1);
        assertThat(catalog.mayContain(key("a"), 1)).isTrue();
        catalog.suppress(key("a"), 1, 1);
        assertThat(catalog.mayContain(key("a"), SUPPRESSION + 1)).isFalse();
        catalog.readElsewhere(key("a"));
        catalog.suppress(key("a"), 1, 1);
        assertThat(catalog.mayContain(key("a"), SUPPRESSION + 1)).isTrue();
    }

    @Test
    void takesASightedFileBackOnceItsEvictionIsOver() {
        commit(key("a"), 1);
        evict();
        catalog.evicted();
        assertThat(catalog.sighted(key("a"), BYTES, 1, 1, catalog.lookBegins())).isTrue();
        assertThat(catalog.files()).isEqualTo(1);
    }

    @Test
    void forgetsAFileThatWasEvictedAfterTheLookBegan() {
        commit(key("a"), 1);
        long look = catalog.lookBegins();
        evict();
        catalog.evicted();
        assertThat(catalog.sighted(key("a"), BYTES, 1, 1, look)).isFalse();
        assertThat(catalog.files()).isZero();
        assertThat(catalog.usedBytes()).isZero();
    }

    @Test
    void forgetsAFileThatIsAboutToGo() {
        commit(key("a"), 1);
        evict();
        long look = catalog.lookBegins();
        catalog.evicted();
        assertThat(catalog.sighted(key("a"), BYTES, 1, 1, look)).isFalse();
        assertThat(catalog.files()).isZero();
    }

    @Test
    void takesAFileForThereWhileAnotherIsEvicted() {
        commit(key("a"), 1);
        evict();
        assertThat(catalog.sighted(key("b"), BYTES, 1, 1, catalog.lookBegins())).isTrue();
        assertThat(catalog.files()).isEqualTo(1);
    }

    @Test
    void keepsTheRoomOfAnEvictionForWhoEvicts() {
        for (int i = 0; i < 100; i++) {
            commit(key("a" + i), i + 1);
        }
        assertThat(catalog.oldest(victim)).isTrue();
        assertThat(catalog.evict(victim, BYTES)).isTrue();
        assertThat(victim.reserved()).isTrue();
        assertThat(catalog.reserve(BYTES)).as("by somebody else").isFalse();
        catalog.kept(victim, BYTES, 0, 1); // its file could not be deleted
        catalog.evicted();
        assertReservesNothing();
        assertThat(catalog.usedBytes()).isEqualTo(100 * BYTES);

        assertThat(catalog.oldest(victim)).isTrue();
        assertThat(catalog.evict(victim, 2 * BYTES)).isTrue();
        assertThat(victim.reserved()).as("not enough for two").isFalse();
        catalog.evicted();
        assertReservesNothing();
    }

    /// A load that ends after the first suppression is over.
    @Test
    void countsAFailureOnceHoweverLateItIsReportedAgain() {
        commit(key("a"), 1);
        catalog.suppress(key("a"), 0, 1);
        long over = 1 + SUPPRESSION;
        catalog.suppress(key("a"), 0, over);
        assertThat(catalog.mayContain(key("a"), over)).as("reported again").isTrue();
        catalog.suppress(key("a"), over, over + 1);
        assertThat(catalog.mayContain(key("a"), over + 2 * SUPPRESSION))
                .as("failed again")
                .isFalse();
        assertThat(catalog.mayContain(key("a"), over + 1 + 2 * SUPPRESSION)).isTrue();
    }

    /// A load of several files that failed for one of them in another way.
    @Test
    void forgetsAFileThatALoadDidNotFindUnlessItsLookupsAreToMiss() {
        commit(key("gone"), 1);
        commit(key("unreadable"), 2);
        commit(key("hangs"), 3);
        catalog.markUnreadable(key("unreadable"));
        catalog.suppress(key("hangs"), 0, 0);
        for (String each : List.of("gone", "unreadable", "hangs")) {
            catalog.missedElsewhere(key(each), 1, 2);
        }
        assertThat(catalog.contains(key("gone"))).isFalse();
        assertThat(catalog.unreadable(key("unreadable"))).isTrue();
        assertThat(catalog.mayContain(key("hangs"), SUPPRESSION - 1)).isFalse();
        assertThat(catalog.contains(key("hangs"))).isTrue();
    }

    @Test
    void keepsAFileThatWasSavedSinceALoadDidNotFindIt() {
        commit(key("a"), 1);
        catalog.confirm(key("a"), BYTES, 10, 1);
        catalog.missedElsewhere(key("a"), 9, 11);
        assertThat(catalog.mayContain(key("a"), 11)).isTrue();
    }

    @Test
    void missesAFileAfterAFailedReadAlthoughItsEvictionFailed() {
        commit(key("a"), 1);
        catalog.suppress(key("a"), 0, 0);
        evict();
        catalog.evicted();
        catalog.kept(victim, 0, 1, 1);
        long end = SUPPRESSION;
        assertThat(catalog.mayContain(key("a"), end - 1)).isFalse();
        assertThat(catalog.mayContain(key("a"), end)).isTrue();
        catalog.suppress(key("a"), end, end);
        assertThat(catalog.mayContain(key("a"), 3 * end - 1)).as("the second failure").isFalse();
        assertThat(catalog.usedBytes()).isEqualTo(BYTES);
    }

    /// A reader that opened the file before reads on.
    @Test
    void missesAFileWhoseReadFailedDuringAnEvictionThatFailed() {
        commit(key("a"), 1);
        evict();
        catalog.readFailed(key("a"), 0);
        catalog.suppress(key("a"), 0, 0);
        catalog.evicted();
        catalog.kept(victim, 0, 1, 1);
        assertThat(catalog.mayContain(key("a"), 2)).isFalse();
        assertThat(catalog.mayContain(key("a"), SUPPRESSION)).isTrue();
        assertThat(catalog.usedBytes()).isEqualTo(BYTES);
    }

    @Test
    void missesAnUnreadableFileWhoseEvictionFailed() {
        commit(key("a"), 1);
        assertThat(catalog.oldest(victim)).isTrue();
        catalog.markUnreadable(key("a"));
        assertThat(catalog.evict(victim, 0)).isTrue();
        catalog.evicted();
        catalog.kept(victim, 0, 1, 1);
        assertThat(catalog.unreadable(key("a"))).isTrue();
    }

    @Test
    void takesAFileForThereWhoseEvictionFailedAfterThatOfOneThatCouldNotBeRead() {
        commit(key("a"), 1);
        commit(key("b"), 2);
        catalog.suppress(key("a"), 0, 0);
        catalog.markUnreadable(key("a"));
        evict();
        catalog.evicted();
        evict();
        catalog.evicted();
        catalog.kept(victim, 0, 1, 1);
        assertThat(catalog.presence(key("b"), 1)).isNotEqualTo(SpaceCatalog.Presence.SUPPRESSED);
    }

    @Test
    void ignoresALookThatTookLongerThanEvictionsAreRemembered() {
        long look = catalog.lookBegins();
        for (int i = 0; i < 300; i++) {
            commit(key("a" + i), 1);
            evict();
            catalog.evicted();
        }
        assertThat(catalog.sighted(key("b"), BYTES, 1, 1, look)).isFalse();
        assertThat(catalog.sighted(key("b"), BYTES, 1, 1, catalog.lookBegins())).isTrue();
    }

    @Test
    void evictsTheDeepestOfAPrefixFirstInWhateverOrderItWasUsed() {
        for (int depth : new int[] {2, 0, 3, 1}) {
            commit(key("p" + depth), Recency.stamp(1_000, depth));
        }
        commit(key("older"), Recency.stamp(999, 0));
        var order = new ArrayList<KeyDigest>();
        for (int i = 0; i < 5; i++) {
            order.add(evict());
        }
        assertThat(order)
                .isEqualTo(List.of(key("older"), key("p3"), key("p2"), key("p1"), key("p0")));
    }

    @Test
    void keepsWhatAnotherProcessUsedLater() {
        commit(key("mine"), Recency.stamp(5_000, 0));
        commit(key("theirs"), Recency.stamp(1_000, 0));
        assertThat(catalog.oldest(victim)).isTrue();
        assertThat(victim.digest()).isEqualTo(key("theirs"));
        catalog.correct(victim, recency.persistent(Recency.stamp(61_000, 0)), 61_000);
        assertThat(evict()).isEqualTo(key("mine"));
    }

    @Test
    void learnsFromALookThatAnotherProcessUsedAFileLater() {
        var recency = new Recency(60_000, () -> Instant.ofEpochMilli(62_000), () -> 0);
        var catalog = new SpaceCatalog(100 * BYTES, 0, 0, 0, SUPPRESSION, recency);
        catalog.confirm(key("theirs"), BYTES, 0, Recency.stamp(1_000, 0));
        catalog.confirm(key("mine"), BYTES, 0, Recency.stamp(5_000, 0));
        long persistent = recency.persistent(Recency.stamp(61_000, 0));
        catalog.sighted(key("theirs"), BYTES, 0, persistent, catalog.lookBegins());
        assertThat(catalog.oldest(victim)).isTrue();
        assertThat(victim.digest()).isEqualTo(key("mine"));
        assertThat(catalog.touch(key("theirs"), Recency.stamp(62_000, 0)))
                .as("the file has that time")
                .isZero();
    }

    @Test
    void writesTheTimeOfAFileOncePerInterval() {
        commit(key("a"), Recency.stamp(1_000, 3));
        assertThat(catalog.touch(key("a"), Recency.stamp(59_000, 3))).isZero();
        long persistent = catalog.touch(key("a"), Recency.stamp(61_000, 3));
        assertThat(persistent).isEqualTo(recency.persistent(Recency.stamp(60_000, 3)));
        catalog.persisted(key("a"), persistent);
        assertThat(catalog.touch(key("a"), Recency.stamp(119_000, 3))).isZero();
    }

    @Test
    void takesATimeFromAClockThatIsAheadForThePresent() {
        catalog.discovered(key("ahead"), BYTES, 0, Recency.stamp(9_000_000, 0), 1_000, 1);
        commit(key("now"), Recency.stamp(1_001, 0));
        assertThat(evict()).isEqualTo(key("ahead"));
    }
}
