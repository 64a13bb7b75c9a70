// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.p2p.testkit.ChildJvm;
import io.kvferry.backend.mooncake.p2p.testkit.RefusedThreads;
import io.kvferry.backend.mooncake.p2p.testkit.RefusedThreadsChild;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.nio.file.Path;
import java.util.List;

/// Hand-overs while the system refuses to create threads at random, wherever either engine starts
/// one. Each hand-over ends in time with an outcome, reported blocks have arrived, no block is held
/// for ever, closing ends, and everything works again once threads are available.
class ScarceThreadsTest {
    @TempDir Path folder;

    @Test
    @Timeout(600)
    void refusedThreadsLeaveNothingWithoutAnEnd() throws IOException {
        play(1, 6);
    }

    @Test
    @Tag("soak")
    @Timeout(3600)
    void refusedThreadsLeaveNothingWithoutAnEndForLong() throws IOException {
        play(
                Long.getLong("kvferry.soak.first_seed", 1000),
                Long.getLong("kvferry.soak.seeds", 300));
    }

    private void play(long first, long count) throws IOException {
        try (var child =
                new ChildJvm(
                        List.of(RefusedThreads.flag(folder)),
                        RefusedThreadsChild.class,
                        String.valueOf(first),
                        String.valueOf(count))) {
            for (long seed = first; seed < first + count; seed++) {
                var said = child.hear("");
                while (!said.startsWith("seed ") && !said.startsWith("failed")) {
                    said = child.hear("");
                }
                assertThat(said).startsWith("seed " + seed + " passed");
            }
            System.out.println("threads were refused at " + child.hear("places"));
        }
    }
}
