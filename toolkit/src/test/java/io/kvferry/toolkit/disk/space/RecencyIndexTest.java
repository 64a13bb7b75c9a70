// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk.space;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;

class RecencyIndexTest {
    /// What the index should hold, by time, of equal times in the order in which they were set.
    private record Entry(KeyDigest digest, long stamp) {}

    private final RecencyIndex index = new RecencyIndex();
    private final List<Entry> expected = new ArrayList<>();

    private void put(KeyDigest digest, long stamp) {
        expected.removeIf(each -> each.digest().equals(digest));
        int at = expected.size();
        while (at > 0 && expected.get(at - 1).stamp() > stamp) {
            at--;
        }
        expected.add(at, new Entry(digest, stamp));
    }

    /// Takes all files out, the oldest first.
    private List<KeyDigest> drain() {
        var order = new ArrayList<KeyDigest>();
        for (int slot = index.oldest(); slot != RecencyIndex.NONE; slot = index.oldest()) {
            order.add(index.digest(slot));
            index.remove(slot);
        }
        return order;
    }

    /// Few different times, so that many are equal.
    @ParameterizedTest
    @ValueSource(ints = {1, 3, 20, 1_000_000})
    void staysSortedByTimeWhateverTheOrderOfUses(int times) {
        var random = new SplittableRandom(times);
        for (int round = 0; round < 300; round++) {
            int steps = random.nextInt(200);
            for (int step = 0; step < steps; step++) {
                step(new KeyDigest(random.nextInt(50), 0, 0, 0), random.nextInt(times), random);
                assertThat(index.size()).isEqualTo(expected.size());
            }
            assertThat(holding()).isEqualTo(expected.size());
            assertThat(drain()).isEqualTo(expected.stream().map(Entry::digest).toList());
            expected.clear();
        }
    }

    private void step(KeyDigest digest, long stamp, SplittableRandom random) {
        int slot = index.find(digest);
        if (slot == RecencyIndex.NONE) {
            index.add(digest, 1, stamp);
            put(digest, stamp);
        } else if (random.nextInt(3) == 0) {
            index.remove(slot);
            expected.removeIf(each -> each.digest().equals(digest));
        } else if (index.stamp(slot) != stamp) { // else it stays where it is
            index.touch(slot, stamp);
            put(digest, stamp);
        }
    }

    /// As many files of another process as there are own ones, used in the same time.
    @Test
    void takesFilesInOrderOfTimeWithoutASearchForEach() {
        int files = 700_000; // with a search for each the test would not end in its limit
        for (int i = 0; i < files; i++) {
            index.add(new KeyDigest(2 * i, 0, 0, 0), 1, 2 * i);
        }
        for (int i = 0; i < files; i++) {
            index.add(new KeyDigest(2 * i + 1, 0, 0, 0), 1, 2 * i + 1);
            if (i % 3 == 0) { // others go on using files
                index.touch(index.find(new KeyDigest(2 * files - 2, 0, 0, 0)), 2L * files + i);
                index.touch(index.find(new KeyDigest(2 * files - 4, 0, 0, 0)), 2L * files + i - 1);
            }
        }
        long expected = 0;
        for (int slot = index.oldest(); expected < 2 * files - 4; slot = index.oldest()) {
            assertThat(index.digest(slot).a()).isEqualTo(expected++);
            index.remove(slot);
        }
        assertThat(drain()).hasSize(4);
    }

    private int holding() {
        int count = 0;
        for (int slot = 0; slot < index.slots(); slot++) {
            count += index.holds(slot) ? 1 : 0;
        }
        return count;
    }
}
