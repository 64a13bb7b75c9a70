// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;

/// Requests that succeed or fail, engines that break, recover, come and go, and time that passes,
/// in random order. The oracle: while an engine has no pause, no engine within its pause gets a
/// request; if all have one, one still gets it; an engine gets a trial soon after its pause, one at
/// a time; nothing is kept of engines that are gone.
class RestingEnginesInterleavingTest {
    private static final long SECOND = Duration.ofSeconds(1).toNanos();
    private static final long FIRST_REST = 5 * SECOND;
    private static final long LONGEST_REST = 320 * SECOND;
    private static final int STEPS = 600;

    @Test
    void keepsItsInvariantsInAFewHundredHistories() {
        for (long seed = 0; seed < 300; seed++) {
            new History(seed).play();
        }
    }

    @Test
    @Tag("soak")
    @Timeout(3600)
    void keepsItsInvariantsInManyHistories() {
        long first = Long.getLong("kvferry.soak.first_seed", 1000);
        for (long seed = first; seed < first + Long.getLong("kvferry.soak.seeds", 50_000); seed++) {
            new History(seed).play();
        }
    }

    /// What the oracle knows of an engine that rests.
    private static final class Rest {
        int trials = 1;
        long until;
        boolean tried;

        long length() {
            return Math.min(FIRST_REST << Math.min(trials - 1, 20), LONGEST_REST);
        }
    }

    private static final class History {
        private final long seed;
        private final Random random;
        private final AtomicLong now;
        private final RestingEngines engines;
        private final List<String> registered = new ArrayList<>();
        private final Set<String> broken = new HashSet<>();
        private final Map<String, Rest> rests = new HashMap<>();
        private final List<String> underWay = new ArrayList<>();
        private int names;
        private int step;

        History(long seed) {
            this.seed = seed;
            this.random = new Random(seed);
            this.now = new AtomicLong(random.nextLong()); // a clock has any origin
            this.engines = new RestingEngines(now::get);
            register();
        }

        private void register() {
            registered.add("e" + names++);
        }

        private boolean rests(String engine) {
            var rest = rests.get(engine);
            return rest != null && rest.until - now.get() > 0;
        }

        void play() {
            for (step = 0; step < STEPS; step++) {
                switch (random.nextInt(12)) {
                    case 0, 1, 2, 3 -> request(random.nextInt(registered.size()));
                    case 4, 5, 6, 7 -> end();
                    case 8 ->
                            now.addAndGet(
                                    random.nextLong(random.nextInt(4) == 0 ? 400 : 8) * SECOND);
                    case 9 -> flip();
                    default -> comeOrGo();
                }
                assertThat(engines.size())
                        .as("%s: kept of %s", this, registered)
                        .isLessThanOrEqualTo(registered.size() + underWay.size());
            }
            settle();
        }

        /// The choice has to be the first in turn that does not rest.
        private void request(int first) {
            var chosen = engines.choose(registered, first, engine -> engine);
            var inTurn = new ArrayList<>(registered);
            Collections.rotate(inTurn, -first);
            var expected = inTurn.stream().filter(engine -> !rests(engine)).findFirst();
            assertThat(chosen)
                    .as("%s: of %s", this, inTurn)
                    .isEqualTo(expected.orElse(inTurn.getFirst()));
            var rest = rests.get(chosen);
            if (rest != null && expected.isPresent()) {
                rest.tried = true;
                rest.until = now.get() + rest.length();
            }
            underWay.add(chosen);
        }

        private void end() {
            if (underWay.isEmpty()) {
                return;
            }
            var engine = underWay.remove(random.nextInt(underWay.size()));
            if (!broken.contains(engine)) {
                engines.worked(engine);
                rests.remove(engine);
                return;
            }
            engines.failed(engine);
            var rest = rests.get(engine);
            if (rest == null) {
                rest = new Rest();
                rests.put(engine, rest);
                rest.until = now.get() + rest.length();
            } else if (rest.tried) {
                rest.tried = false;
                rest.trials++;
                rest.until = now.get() + rest.length();
            }
            if (!registered.contains(engine)) { // until the next look at the bootstrap server
                look();
            }
        }

        private void flip() {
            var engine = registered.get(random.nextInt(registered.size()));
            if (!broken.remove(engine)) {
                broken.add(engine);
            }
        }

        private void comeOrGo() {
            if (registered.size() < 6 && random.nextBoolean()) {
                register();
            } else if (registered.size() > 1) {
                registered.remove(random.nextInt(registered.size()));
            }
            look();
        }

        private void look() {
            engines.keepOnly(registered);
            rests.keySet().retainAll(registered);
            assertThat(engines.size()).as("%s", this).isEqualTo(rests.size());
        }

        /// All recover: within the longest rest each engine has worked again, and nothing is kept.
        private void settle() {
            broken.clear();
            while (!underWay.isEmpty()) {
                end();
            }
            now.addAndGet(LONGEST_REST);
            for (int i = 0; i < registered.size(); i++) {
                request(i);
            }
            while (!underWay.isEmpty()) {
                end();
            }
            assertThat(registered).as("%s: still out", this).noneMatch(rests::containsKey);
            assertThat(engines.size()).as("%s: kept", this).isZero();
        }

        @Override
        public String toString() {
            return "seed " + seed + ", step " + step;
        }
    }
}
