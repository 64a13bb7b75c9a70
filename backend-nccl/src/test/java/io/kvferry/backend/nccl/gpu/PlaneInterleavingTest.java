// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import static io.kvferry.backend.nccl.plane.PlaneRuns.BLOCKS;
import static io.kvferry.backend.nccl.plane.PlaneRuns.SOON;
import static io.kvferry.backend.nccl.plane.PlaneRuns.await;
import static io.kvferry.backend.nccl.plane.PlaneRuns.contents;
import static io.kvferry.backend.nccl.plane.PlaneRuns.fill;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.gpu.NcclDouble.Knob;
import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.plane.HostPlane;
import io.kvferry.backend.nccl.plane.Placement;
import io.kvferry.backend.nccl.plane.PlaneRuns;
import io.kvferry.backend.nccl.plane.PlaneRuns.Run;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.lang.foreign.Arena;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.function.IntFunction;
import java.util.stream.IntStream;

/// Three planes of each kind, transfers in all directions at once, given up in all ways at random
/// moments; those of NCCL over one that is slow, fails and brings wrong bits. The oracle: every end
/// is told once; what is told as there is there, bit by bit; nothing is written into a window after
/// its end, nor read from a source after its own; without faults everything arrives; nothing of the
/// device stays.
class PlaneInterleavingTest {
    private static final int TRANSFERS = 40;

    private final NcclDouble nccl = NcclDouble.load();

    /// One transfer and what the oracle knows of it.
    private static final class Story {
        final byte[] source;
        final Run run;
        final CompletableFuture<byte[]> atEnd;
        boolean undisturbed = true;

        Story(Random random, Arena arena, List<DataPlane> planes) {
            int sender = random.nextInt(planes.size());
            int receiver = (sender + 1 + random.nextInt(planes.size() - 1)) % planes.size();
            int layers = 1 + random.nextInt(4);
            long blockBytes = 1 + random.nextInt(random.nextBoolean() ? 100 : 30_000);
            int count = 1 + random.nextInt(6);
            var from = PlaneRuns.placement(arena, layers, blockBytes, blocks(random, count));
            var to = PlaneRuns.placement(arena, layers, blockBytes, blocks(random, count));
            fill(from, random);
            source = contents(from);
            var limit = random.nextInt(12) == 0 ? Duration.ofMillis(random.nextInt(60)) : SOON;
            undisturbed = limit == SOON;
            run = new Run(planes.get(sender), planes.get(receiver), from, to, limit);
            atEnd = run.received.thenApply(_ -> contents(to));
            var _ = run.sent.thenRun(() -> fill(from, new Random(1))); // another's by now
        }

        private static int[] blocks(Random random, int count) {
            var all = new ArrayList<>(IntStream.range(0, BLOCKS).boxed().toList());
            Collections.shuffle(all, random);
            return all.subList(0, count).stream().mapToInt(Integer::intValue).toArray();
        }

        /// The next thing that happens to it.
        ///
        /// @return whether something more can
        boolean disturb(Random random) {
            switch (random.nextInt(16)) {
                case 0 -> {
                    undisturbed = false;
                    run.sending.abort();
                    return random.nextBoolean();
                }
                case 1 -> {
                    undisturbed = false;
                    run.window.withdraw();
                    return random.nextBoolean();
                }
                case 2 -> {
                    undisturbed = false;
                    run.window.withdrawUnused();
                }
                case 3, 4, 5, 6, 7, 8, 9 ->
                        run.sending.available(1 + random.nextInt(run.from.parts().size()));
                default -> {
                    run.sending.commit();
                    return false;
                }
            }
            return true;
        }

        void assertTold(boolean faults, String label) {
            var received = await(run.received);
            var sent = await(run.sent);
            if (undisturbed && !faults) {
                assertThat(received).as(label).isEqualTo(new Outcome.Done(source.length));
                assertThat(sent).as(label).isEqualTo(new Outcome.Done(source.length));
            }
            if (sent instanceof Outcome.Done) {
                assertThat(received)
                        .as("%s: the receiver has what was sent", label)
                        .isInstanceOf(Outcome.Done.class);
            }
            if (received instanceof Outcome.Done) {
                assertThat(Arrays.equals(atEnd.join(), source)).as(label).isTrue();
            }
        }

        /// Once everything is closed: as it was when the end was told.
        void assertQuiet(String label) {
            assertThat(Arrays.equals(contents(run.to), atEnd.join())).as(label).isTrue();
            var inside = run.to;
            for (var part : inside.parts()) {
                var mine = IntStream.of(part.blocks()).boxed().toList();
                for (int block = 0; block < BLOCKS; block++) {
                    if (!mine.contains(block)) {
                        var other =
                                new Placement.Part(
                                        part.layerIndex(),
                                        part.segment(),
                                        part.strideBytes(),
                                        part.blockBytes(),
                                        new int[] {block});
                        var bytes = contents(new Placement(List.of(other)));
                        assertThat(Arrays.equals(bytes, new byte[bytes.length]))
                                .as("%s: block %d is none of the window", label, block)
                                .isTrue();
                    }
                }
            }
        }
    }

    private void campaignOverNccl(long seed, boolean faults) {
        campaign(
                seed,
                faults,
                i -> PlanePair.plane(nccl, "ilv-" + i, 16 << 10, Duration.ofSeconds(20)));
        nccl.assertClean();
    }

    private void campaignOverHost(long seed, HostPlane.Ways ways) {
        campaign(seed, false, i -> HostPlane.open("ilv-" + i, "127.0.0.1", "127.0.0.1", ways));
    }

    private void campaign(long seed, boolean faults, IntFunction<DataPlane> open) {
        var label = "seed " + seed + (faults ? " with faults" : "");
        var random = new Random(seed);
        nccl.reset();
        nccl.set(Knob.INIT_POLLS, random.nextInt(6));
        nccl.set(Knob.GROUP_POLLS, random.nextInt(4));
        nccl.set(Knob.DELAY_US, random.nextInt(3) * 60L);
        var planes = new ArrayList<DataPlane>();
        for (int i = 0; i < 3; i++) {
            planes.add(open.apply(i));
        }
        var stories = new ArrayList<Story>();
        try (var arena = Arena.ofShared()) {
            try {
                play(random, faults, arena, planes, stories);
                nccl.set(Knob.FAIL_GROUP, 0);
                for (var story : stories) {
                    story.run.sending.commit();
                }
                for (var story : stories) {
                    if (!(await(story.run.sent) instanceof Outcome.Done)) {
                        story.run.window.withdraw(); // the sender may never have come
                    }
                }
                for (int i = 0; i < stories.size(); i++) {
                    stories.get(i).assertTold(faults, label + ", transfer " + i);
                }
            } finally {
                planes.forEach(DataPlane::close);
            }
            stories.forEach(story -> story.assertQuiet(label));
        }
    }

    private void play(
            Random random,
            boolean faults,
            Arena arena,
            List<DataPlane> planes,
            List<Story> stories) {
        var moving = new ArrayList<Story>();
        while (stories.size() < TRANSFERS || !moving.isEmpty()) {
            if (stories.size() < TRANSFERS && random.nextInt(3) == 0) {
                var story = new Story(random, arena, planes);
                stories.add(story);
                moving.add(story);
            }
            if (!moving.isEmpty()) {
                int which = random.nextInt(moving.size());
                if (!moving.get(which).disturb(random)) {
                    moving.remove(which);
                }
            }
            if (faults) {
                switch (random.nextInt(30)) {
                    case 0 -> nccl.set(Knob.FAIL_GROUP, 1 + random.nextInt(3));
                    case 1 -> nccl.set(Knob.FLIP, 1 + random.nextInt(3));
                    default -> {}
                }
            }
            if (random.nextInt(4) == 0) {
                Thread.yield();
            }
        }
    }

    @Test
    @Timeout(600)
    void whateverIsToldIsTrue() {
        for (long seed = 1; seed <= 4; seed++) {
            campaignOverNccl(seed, false);
            campaignOverNccl(seed, true);
        }
    }

    @ParameterizedTest
    @EnumSource
    @Timeout(600)
    void whateverIsToldIsTrueOverHostMemory(HostPlane.Ways ways) {
        for (long seed = 1; seed <= 5; seed++) {
            campaignOverHost(seed, ways);
        }
    }

    @Tag("soak")
    @Test
    @Timeout(1800)
    void whateverIsToldIsTrueForLong() {
        long first = System.nanoTime() & 0xffff_ffffL;
        for (long seed = first; seed < first + 300; seed++) {
            campaignOverNccl(seed, seed % 2 == 0);
            campaignOverHost(seed, HostPlane.Ways.values()[(int) (seed % 2)]);
        }
    }
}
