// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import java.util.EnumMap;
import java.util.Map;
import java.util.random.RandomGenerator;
import java.util.random.RandomGeneratorFactory;

/// Which faults strike how often. The same seed and the same order of questions give the same
/// faults.
///
/// Threading: any thread.
public final class FaultPlan {
    /// What can go wrong.
    public enum Fault {
        /// A method throws.
        THROW,
        /// A method throws an Error, as code does that misses a class or recurses without end.
        ERROR,
        /// A method that owes an answer gives none.
        NULL,
        /// A lookup answers a hit that reaches beyond the request or the item, or ends within a
        /// block.
        ILLEGAL_HIT,
        /// A transfer fails, and says so.
        FAIL,
        /// A completion comes some steps (connectors) or milliseconds (backends) later.
        DELAY,
        /// A byte of what was transferred is wrong, and nobody says so.
        CORRUPT,
        /// Only the first half of the blocks or descriptors is claimed to have been moved.
        TRUNCATE,
        /// A completion or notification comes twice.
        DUPLICATE,
        /// A completion never comes.
        LOSE,
        /// A transfer never ends by itself (connectors); once revoked, it says so.
        HANG
    }

    private final long seed;
    private final RandomGenerator random;
    private final Map<Fault, Double> chances = new EnumMap<>(Fault.class);
    private final Map<Fault, Integer> left = new EnumMap<>(Fault.class);
    private final Map<Fault, Integer> struck = new EnumMap<>(Fault.class);

    private FaultPlan(long seed) {
        this.seed = seed;
        this.random = RandomGeneratorFactory.of("L64X128MixRandom").create(seed);
    }

    /// A plan without faults.
    public static FaultPlan seeded(long seed) {
        return new FaultPlan(seed);
    }

    /// Each chance to do so, the fault strikes with this probability.
    public synchronized FaultPlan with(Fault fault, double probability) {
        chances.put(fault, probability);
        left.put(fault, Integer.MAX_VALUE);
        return this;
    }

    /// The fault strikes the next `times` chances, then never again.
    public synchronized FaultPlan next(Fault fault, int times) {
        chances.put(fault, 1.0);
        left.put(fault, times);
        return this;
    }

    /// Ends all faults.
    public synchronized FaultPlan heal() {
        chances.clear();
        return this;
    }

    /// Whether the fault strikes now.
    public synchronized boolean strikes(Fault fault) {
        double chance = chances.getOrDefault(fault, 0.0);
        int remaining = left.getOrDefault(fault, 0);
        if (chance == 0 || remaining == 0 || random.nextDouble() >= chance) {
            return false;
        }
        left.put(fault, remaining == Integer.MAX_VALUE ? remaining : remaining - 1);
        struck.merge(fault, 1, Integer::sum);
        return true;
    }

    /// A number from 0 (inclusive) to `bound` (exclusive), from the same seed.
    public synchronized int pick(int bound) {
        return random.nextInt(bound);
    }

    /// How often the fault has struck.
    public synchronized int struck(Fault fault) {
        return struck.getOrDefault(fault, 0);
    }

    @Override
    public synchronized String toString() {
        return "FaultPlan[seed " + seed + ", " + chances + ", struck " + struck + "]";
    }
}
