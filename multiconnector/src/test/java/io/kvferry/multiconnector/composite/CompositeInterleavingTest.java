// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.util.stream.Collectors;

/// Random requests with and without encoder items, aborts, model failures and worker deaths, on
/// engines of several ranks over random trees of composites. Leaves behave at random and are turned
/// off and reopened. Whatever the order, tokens and stored blocks are correct, every request gets
/// an outcome, and every block and row is released.
///
/// What each dimension is for, and the seed that failed first when the fix was taken out, where
/// that was tried (`src/test/mutants/fixes-out.py` tries it):
///
/// | dimension | class of defect | seed |
/// |---|---|---|
/// | composites in composites, whose leaves fail | parts that are trusted although they were not loaded | 2 |
/// | a composite that composes loads of a leaf and of a composite | equal ids of further tries on two levels | 201 |
/// | several ranks that end a load differently | blocks that one rank has not loaded | 33 |
/// | short deadlines, revocations answered late or never | requests that wait for ever | 39 |
/// | loads, holds and leases that are not answered | requests that wait for their blocks for ever | 29 |
/// | scarce blocks, items larger than half the encoder cache | references that preempted requests keep | 101 |
/// | items without content that nobody has | failures of others than the request that needs the item | 242 |
/// | requests that are more urgent than others | rows that a preempted request keeps while others run | no seed |
/// | loads of items that are not answered | requests that wait for their rows for ever | 245 |
/// | loads that fail in their step, scarce rows | requests that wait for rows that they have themselves | 256 |
/// | encode engines | items that are reserved in part | 159 |
/// | encode engines, items larger than the cache | requests that wait for ever and block others | 3 |
/// | leaves that report ends of loads that they may be given later | loads that never end, or end before a rank has done them | 46 |
/// | encoder composites in each other, with several children | as for tokens, of items | |
/// | submissions while an engine is closed | requests without an outcome | 202 |
/// | requests that are admitted while others wait with their loads done | requests that starve behind later ones | 19 |
/// | leaves that throw | children that stay off, leases and ids that outlive them | |
/// | leaves that hang in their close | ranks and siblings that wait for them, blocks that are reused before they are closed | 234 |
/// | engines with a leaf and no composite | ends of loads that a composite would have dropped | 223 |
/// | composites whose leaves take over while they load, and report loads that they may be given later | parts that end before a rank has loaded them | no seed |
/// | deaths of workers | blocks and items that are found after they were lost | 2 |
class CompositeInterleavingTest {
    private static final int AT_A_TIME = 4;
    private static final int MOST_FAILED = 10;

    @Test
    @Timeout(600) // a fraction of that, unless others keep the machine busy
    void keepsItsInvariantsInAFewHundredInterleavings() {
        long before = ChaosRun.reopened();
        long hung = ChaosRun.hung();
        runs(0, 300);
        assertThat(ChaosRun.reopened() - before).as("children opened again").isGreaterThan(50);
        assertThat(ChaosRun.hung() - hung).as("children that hung in their close").isPositive();
    }

    /// Seeds that failed when one fix was taken out, and what it is for. The engines' limits are in
    /// real time, so that a seed need not fail every time.
    @ParameterizedTest
    @CsvSource({
        "2, a part of a composed load that is revoked has failed",
        "4, a part of a composed load that is revoked has failed",
        "4, a report that names no block or a wrong one is a failure of everything it covers",
        "9, a report that names no block or a wrong one is a failure of everything it covers",
        "2, a failure that names no block of a full hit means all of them",
        "4, a failure that names no block of a full hit means all of them",
        "39, a request does not wait for ever for a revocation that is not answered",
        "82, a request does not wait for ever for a revocation that is not answered",
        "29, a request does not wait for ever for blocks that may never come back",
        "46, a request does not wait for ever for blocks that may never come back",
        "7, a load that is revoked before its plan does not start",
        "29, a load that is revoked before its plan does not start",
        "33, what one rank has given up is not loaded, whatever the others report",
        "49, what one rank has given up is not loaded, whatever the others report",
        "2, the prefix cache forgets what lost workers had",
        "11, the prefix cache forgets what lost workers had",
        "19, a request whose load is done is not overtaken by waiting ones",
        "113, a request whose load is done is not overtaken by waiting ones",
        "101, a request that is preempted gives its references on items back",
        "242, an item that nobody can serve fails the request that needs it and no other",
        "245, a request does not wait for items that never get room",
        "159, room is reserved for all items of a request or for none",
        "3, an engine that only encodes refuses at once what it can never hold",
        "6, an engine that only encodes refuses at once what it can never hold",
        "20418, a request does not wait for items that have no room together",
        "223, the engine drops the end of a load that is not open",
        "256, a request does not wait for rows that it has itself",
        "234, what a child has open does not end while it hangs in its close",
        "201, the ids of further tries differ between a composite and one in it",
    })
    void keepsItsInvariantsWhereADefectShowed(long seed, String fix) {
        ChaosRun.check(seed);
    }

    /// Worker processes that are killed at random.
    @Test
    void keepsItsInvariantsWithWorkerProcesses() {
        ChaosRun.check(0, ChaosRun.Where.PROCESSES);
    }

    @Test
    @Tag("soak")
    @Timeout(7200)
    void keepsItsInvariantsWithManyWorkerProcesses() {
        for (long seed = 100; seed < 200; seed++) {
            ChaosRun.check(seed, ChaosRun.Where.PROCESSES);
        }
    }

    /// In parts: `kvferry.soak.first_seed` and `kvferry.soak.seeds` say which of them.
    @Test
    @Tag("soak")
    @Timeout(14_400) // so many seeds take longer than a test usually may
    void keepsItsInvariantsInManyThousandInterleavings() {
        long first = Long.getLong("kvferry.soak.first_seed", 1000);
        runs(first, first + Long.getLong("kvferry.soak.seeds", 20_000));
    }

    /// Engines wait for most of their time, for limits that are short, but not too short for one
    /// that has others beside it.
    private static void runs(long from, long to) {
        int threads = Integer.getInteger("kvferry.soak.threads", AT_A_TIME);
        var failed = ChaosSeeds.run(from, to, threads, MOST_FAILED, System.out::println);
        if (!failed.isEmpty()) {
            throw new AssertionError(
                    failed.stream().map(ChaosSeeds.Failed::brief).collect(Collectors.joining("\n")),
                    failed.getFirst().why());
        }
    }
}
