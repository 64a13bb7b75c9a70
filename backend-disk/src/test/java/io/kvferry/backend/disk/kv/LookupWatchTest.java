// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.block.BlockResult;

import org.junit.jupiter.api.Test;

import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;

/// What counts as a file system that does not answer, by a clock of the test.
class LookupWatchTest {
    private static final long SILENT = LookupWatch.MOST_SILENT.toNanos();

    private final AtomicLong clock = new AtomicLong(-5);
    private final LookupWatch watch = new LookupWatch(clock::get);

    private PrefixProbe ask() {
        var layout = new FileLayout(1, 1, 1);
        var probe = new PrefixProbe(new PrefixSearch(layout, List.of(), 0, new RunIndex()));
        watch.asked(probe);
        return probe;
    }

    private static void answer(PrefixProbe probe) {
        probe.completed(0, new BlockResult.Located(0));
    }

    @Test
    void isSilentWhenTheNextLookupIsNotAnsweredAlthoughTheOneBeforeWas() {
        var first = ask();
        var second = ask();
        clock.addAndGet(SILENT);
        answer(first);
        assertThat(watch.isSilent()).as("an answer came just now").isFalse();
        assertThat(watch.isNext(second)).isTrue();
        clock.addAndGet(SILENT + 1);
        assertThat(watch.isSilent()).isTrue();
        watch.reset();
        assertThat(watch.isSilent()).isFalse();
    }

    @Test
    void isNotSilentWhileManyLookupsAreAnsweredOneAfterTheOther() {
        var probes = IntStream.range(0, 50).mapToObj(_ -> ask()).toList();
        for (var probe : probes) {
            clock.addAndGet(SILENT / 2);
            assertThat(watch.isSilent()).isFalse();
            assertThat(watch.isNext(probe)).isTrue();
            answer(probe);
        }
        clock.addAndGet(2 * SILENT);
        assertThat(watch.isSilent()).as("nothing is asked").isFalse();
    }

    @Test
    void isSilentWhenTheStoreTakesNoLookupForLong() {
        assertThat(watch.refused()).isFalse();
        clock.addAndGet(SILENT);
        assertThat(watch.refused()).isFalse();
        clock.addAndGet(1);
        assertThat(watch.refused()).isTrue();
        answer(ask());
        assertThat(watch.refused()).as("it took one in between").isFalse();
    }

    @Test
    void isNotSilentWhenItRefusedTwoLookupsLongAgoAndNow() {
        assertThat(watch.refused()).isFalse();
        clock.addAndGet(10 * SILENT);
        assertThat(watch.refused()).as("nobody asked in between").isFalse();
        clock.addAndGet(SILENT);
        assertThat(watch.refused()).isFalse();
        clock.addAndGet(1);
        assertThat(watch.refused()).isTrue();
    }
}
