// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.decodeElsewhere;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.prefillAt;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.p2p.testkit.BackendHosts;
import io.kvferry.backend.mooncake.p2p.testkit.FakeRequest;
import io.kvferry.backend.mooncake.p2p.testkit.Stranger;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine.Shape;
import io.kvferry.backend.mooncake.p2p.wire.Generation;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.TransferId;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.locks.LockSupport;

/// Loads that are revoked at random moments while their prefiller writes, several at a time, next
/// to one that is not revoked. The blocks of an ended load are reused at once, and must afterwards
/// hold only the bytes of the new user.
class RevocationTest {
    private static final int SLOTS = 4;
    private static final int BLOCKS = 8;
    private static final Shape SHAPE = new Shape(1, 2, 3, 1, (SLOTS + 1) * BLOCKS, 32 << 10, false);

    /// Of a decoder whose blocks rest for a while after a load that was revoked, see
    /// [ExposedBlocks]: where loads are again when they do not any more.
    private static final int PLACES = 16 * SLOTS;

    private static final Shape ROOMY =
            new Shape(1, 2, 3, 1, (PLACES + 1) * BLOCKS, 32 << 10, false);
    private static final int TOKENS = BLOCKS * TestEngine.BLOCK_TOKENS;
    private static final byte[] OTHERS = new byte[SHAPE.blockBytes()];

    static {
        Arrays.fill(OTHERS, (byte) 0xEE);
    }

    /// Loads for each that is to be revoked in time, at most.
    private static final int TRIES = 20;

    private final Random random = new Random(5);
    private int revoked;
    private int completed;

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aKvferryPeerWritesNothingIntoReusedBlocks(boolean crossMemory) {
        revokeOfKvferry(16, crossMemory);
    }

    @Test
    void aPeerWithoutCapabilityWritesNothingIntoReusedBlocks() throws InterruptedException {
        revokeOfStranger(32);
    }

    @Tag("soak")
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void manyRevocationsOfAKvferryPeer(boolean crossMemory) {
        revokeOfKvferry(1000, crossMemory);
    }

    @Tag("soak")
    @Test
    void manyRevocationsOfAPeerWithoutCapability() throws InterruptedException {
        revokeOfStranger(1000);
    }

    /// Mooncake's batch write returns -1 while the descriptors that it accepted keep going.
    @Test
    void aPeerThatGoesOnAfterItsFailureWritesNothingIntoReusedBlocks() throws InterruptedException {
        failOfStranger(128);
    }

    @Tag("soak")
    @Test
    void manyFailuresOfAPeerThatGoesOn() throws InterruptedException {
        failOfStranger(1000);
    }

    @ParameterizedTest
    @ValueSource(strings = {"MOONCAKE", "MEMORY"})
    void nothingIsReadIntoReusedBlocksByTransferBackends(String backend) {
        try (var kvferry = BackendHosts.agent()) {
            revokeOfKvferry(16, BackendHosts.over(backend), kvferry.services());
        }
    }

    @Tag("soak")
    @ParameterizedTest
    @ValueSource(strings = {"MOONCAKE", "MEMORY"})
    void manyRevocationsOverTransferBackends(String backend) {
        try (var kvferry = BackendHosts.agent()) {
            revokeOfKvferry(1000, BackendHosts.over(backend), kvferry.services());
        }
    }

    private void revokeOfKvferry(int wanted, boolean crossMemory) {
        revokeOfKvferry(wanted, Map.of("cross_memory", crossMemory), HostServices.NONE);
    }

    private void revokeOfKvferry(int wanted, Map<String, Object> options, HostServices host) {
        try (var p = new TestEngine(SHAPE, KvRole.PRODUCER, "p", options, host);
                var d = new TestEngine(SHAPE, KvRole.CONSUMER, "d", options, host)) {
            give(d);
            int round = 0;
            for (; revoked < wanted && round < TRIES * wanted; round += SLOTS) {
                var loads = new TransferId[SLOTS];
                var sources = new FakeRequest[SLOTS];
                for (int slot = 0; slot < SLOTS; slot++) {
                    take(d, slot);
                    var name = round + "-" + slot;
                    sources[slot] =
                            p.request("p" + name, TOKENS, slot * BLOCKS, decodeElsewhere(name));
                    p.beginPrefill(sources[slot]);
                    p.compute(sources[slot], round + slot);
                    var params = prefillAt(p.bootstrap, "p", name);
                    loads[slot] = d.beginDecode(target(d, slot, name, params), 0);
                }
                var beside = background(p, d, round);
                var holds = new TransferId[SLOTS];
                for (int slot = 0; slot < SLOTS; slot++) {
                    holds[slot] = p.endPrefill(sources[slot], FinishReason.LENGTH);
                    if (random.nextBoolean()) {
                        revoke(d, loads[slot]);
                    }
                }
                revoke(d, loads);
                for (int slot = 0; slot < SLOTS; slot++) {
                    if (ended(d, loads[slot], slot)) {
                        d.assertHolds(target(d, slot, "check", Map.of()), 0, round + slot);
                        give(d, slot);
                    }
                }
                for (var hold : holds) {
                    p.await(hold);
                }
                assertThat(d.await(beside)).isInstanceOf(Completion.Completed.class);
                d.assertHolds(target(d, SLOTS, "beside", Map.of()), 0, round);
            }
            for (int slot = 0; slot < SLOTS; slot++) {
                take(d, slot);
            }
            say("a kvferry peer", round, wanted);
        }
    }

    /// A load that is not revoked.
    private static TransferId background(TestEngine p, TestEngine d, int round) {
        var name = "beside-" + round;
        p.prefill(p.request("p" + name, TOKENS, SLOTS * BLOCKS, decodeElsewhere(name)), round);
        return d.beginDecode(target(d, SLOTS, name, prefillAt(p.bootstrap, "p", name)), 0);
    }

    /// Each load fails at once, and its blocks are given away while the peer writes on.
    private void failOfStranger(int loads) throws InterruptedException {
        var limit = Duration.ofMillis(400);
        var options =
                Map.<String, Object>of(
                        "peer_layout", "alike", "transfer_timeout", limit.toMillis() + "ms");
        try (var p = new Stranger(Generation.G7, SHAPE.layers(), BLOCKS, SHAPE.blockBytes());
                var d = new TestEngine(ROOMY, KvRole.CONSUMER, "d", options)) {
            var bootstrap = p.serve(1, 1);
            p.goesOn = limit.dividedBy(2);
            p.fill(9, 0, BLOCKS);
            for (int place = 0; place < PLACES; place++) {
                give(d, place);
            }
            for (int number = 0; number < loads; number++) {
                int place = number % PLACES;
                if (place == 0) { // its limit promises that, and a busy machine may overrun it
                    p.awaitWrites();
                }
                take(d, place);
                var params = prefillAt(bootstrap, "stranger", "x" + number);
                var load = d.beginDecode(target(d, place, "-" + number, params), 0);
                assertThat(d.await(load)).isInstanceOf(Completion.Failed.class);
                give(d, place);
            }
            p.awaitWrites();
            for (int place = 0; place < PLACES; place++) {
                take(d, place);
            }
            d.step();
            var refused = d.stats.counters().get("mooncake_num_refused_writes");
            System.out.println(loads + " loads failed, " + refused + " later writes refused");
            assertThat(refused).as("writes that came later").isPositive();
        }
    }

    private void revokeOfStranger(int wanted) throws InterruptedException {
        // A write that was refused has ended by the time that it is answered, unlike Mooncake's.
        var options = Map.<String, Object>of("peer_layout", "alike", "transfer_timeout", "100ms");
        try (var p = new Stranger(Generation.G7, SHAPE.layers(), 2 * BLOCKS, SHAPE.blockBytes());
                var d = new TestEngine(ROOMY, KvRole.CONSUMER, "d", options)) {
            var bootstrap = p.serve(1, 1);
            p.fill(9, 0, BLOCKS);
            p.fill(100, BLOCKS, BLOCKS);
            for (int place = 0; place < PLACES; place++) {
                give(d, place);
            }
            int round = 0;
            for (; revoked < wanted && round < TRIES * wanted; round += SLOTS) {
                if (round % PLACES == 0) { // as above
                    p.awaitWrites();
                }
                // Other bytes than those of the round before, into the same blocks.
                p.source = round / SLOTS % 2 * BLOCKS;
                var loads = new TransferId[SLOTS];
                for (int slot = 0; slot < SLOTS; slot++) {
                    take(d, place(round, slot));
                    var name = round + "-" + slot;
                    var params = prefillAt(bootstrap, "stranger", name);
                    loads[slot] = d.beginDecode(target(d, place(round, slot), name, params), 0);
                }
                var besideName = "beside-" + round;
                var beside =
                        d.beginDecode(
                                target(
                                        d,
                                        PLACES,
                                        besideName,
                                        prefillAt(bootstrap, "stranger", besideName)),
                                0);
                revoke(d, loads);
                for (int slot = 0; slot < SLOTS; slot++) {
                    int place = place(round, slot);
                    if (ended(d, loads[slot], place)) {
                        assertWritten(d, place, p);
                        give(d, place);
                    }
                }
                assertThat(d.await(beside)).isInstanceOf(Completion.Completed.class);
                assertWritten(d, PLACES, p);
            }
            for (int place = 0; place < PLACES; place++) {
                take(d, place);
            }
            say("a peer without capability", round, wanted);
        }
    }

    private static void assertWritten(TestEngine d, int place, Stranger p) {
        for (int layer = 0; layer < SHAPE.layers(); layer++) {
            for (int i = 0; i < BLOCKS; i++) {
                assertThat(block(d, layer, place, i).mismatch(p.block(layer, p.source + i)))
                        .as("byte of an earlier load at %d", place)
                        .isEqualTo(-1);
            }
        }
    }

    private static int place(int round, int slot) {
        return (round + slot) % PLACES;
    }

    private void say(String peer, int loads, int wanted) {
        System.out.println(
                loads
                        + " loads from "
                        + peer
                        + ", "
                        + revoked
                        + " revoked before their end, "
                        + completed
                        + " not: 0 foreign bytes");
        assertThat(revoked).as("revoked in time").isGreaterThanOrEqualTo(wanted);
    }

    private static FakeRequest target(
            TestEngine d, int slot, String name, Map<String, Object> params) {
        return d.request("d" + name, TOKENS, slot * BLOCKS, params);
    }

    /// Those that were revoked before are over by now, and a second revocation changes nothing.
    private void revoke(TestEngine d, TransferId... loads) {
        for (var load : loads) {
            LockSupport.parkNanos(random.nextInt(1_500_000));
            d.revoke(load);
        }
    }

    /// Waits for the end; whether it was completed. Otherwise the blocks are given away.
    private boolean ended(TestEngine d, TransferId load, int slot) {
        if (d.await(load) instanceof Completion.Completed) {
            completed++;
            return true;
        }
        revoked++;
        give(d, slot);
        return false;
    }

    private static MemorySegment block(TestEngine d, int layer, int slot, int index) {
        return d.regions.getFirst().get(layer).block(slot * BLOCKS + index);
    }

    private static void give(TestEngine d) {
        for (int slot = 0; slot < SLOTS; slot++) {
            give(d, slot);
        }
    }

    /// Somebody else computes into the blocks of a slot.
    private static void give(TestEngine d, int slot) {
        for (int layer = 0; layer < SHAPE.layers(); layer++) {
            for (int i = 0; i < BLOCKS; i++) {
                block(d, layer, slot, i).copyFrom(MemorySegment.ofArray(OTHERS));
            }
        }
    }

    /// They come back, and must be as they were computed.
    private static void take(TestEngine d, int slot) {
        var others = MemorySegment.ofArray(OTHERS);
        for (int layer = 0; layer < SHAPE.layers(); layer++) {
            for (int i = 0; i < BLOCKS; i++) {
                var block = block(d, layer, slot, i);
                assertThat(block.mismatch(others))
                        .as("foreign byte in layer %d, slot %d, block %d", layer, slot, i)
                        .isEqualTo(-1);
                block.fill((byte) 0);
            }
        }
    }
}
