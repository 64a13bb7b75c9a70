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
import java.util.Arrays;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.locks.LockSupport;

/// Loads that are revoked at random moments while their prefiller writes, several at a time. The
/// blocks of one that has ended are given to somebody else at once, who must find nothing but their
/// own bytes in them afterwards.
class RevocationTest {
    private static final int SLOTS = 4;
    private static final int BLOCKS = 8;
    private static final Shape SHAPE = new Shape(1, 2, 3, 1, SLOTS * BLOCKS, 32 << 10, false);

    /// Of a decoder whose blocks rest for a while after a load that was revoked, see
    /// [ExposedBlocks]: where loads are again when they do not any more.
    private static final int PLACES = 16 * SLOTS;

    private static final Shape ROOMY = new Shape(1, 2, 3, 1, PLACES * BLOCKS, 32 << 10, false);
    private static final int TOKENS = BLOCKS * TestEngine.BLOCK_TOKENS;
    private static final byte[] OTHERS = new byte[SHAPE.blockBytes()];

    static {
        Arrays.fill(OTHERS, (byte) 0xEE);
    }

    private final Random random = new Random(5);
    private int revoked;
    private int completed;

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aKvferryPeerWritesNothingIntoReusedBlocks(boolean crossMemory) {
        revokeOfKvferry(32, crossMemory);
    }

    @Test
    void aPeerWithoutCapabilityWritesNothingIntoReusedBlocks() throws InterruptedException {
        revokeOfStranger(64);
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

    @ParameterizedTest
    @ValueSource(strings = {"MOONCAKE", "MEMORY"})
    void nothingIsReadIntoReusedBlocksByTransferBackends(String backend) {
        try (var kvferry = BackendHosts.agent()) {
            revokeOfKvferry(32, BackendHosts.over(backend), kvferry.services());
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

    private void revokeOfKvferry(int rounds, boolean crossMemory) {
        revokeOfKvferry(rounds, Map.of("cross_memory", crossMemory), HostServices.NONE);
    }

    private void revokeOfKvferry(int rounds, Map<String, Object> options, HostServices host) {
        try (var p = new TestEngine(SHAPE, KvRole.PRODUCER, "p", options, host);
                var d = new TestEngine(SHAPE, KvRole.CONSUMER, "d", options, host)) {
            give(d);
            for (int round = 0; round < rounds; round += SLOTS) {
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
            }
            for (int slot = 0; slot < SLOTS; slot++) {
                take(d, slot);
            }
        }
        say("a kvferry peer", rounds);
    }

    private void revokeOfStranger(int rounds) throws InterruptedException {
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
            for (int round = 0; round < rounds; round += SLOTS) {
                // Other bytes than those of the round before, into the same blocks.
                p.source = round / SLOTS % 2 * BLOCKS;
                var loads = new TransferId[SLOTS];
                for (int slot = 0; slot < SLOTS; slot++) {
                    take(d, place(round, slot));
                    var name = round + "-" + slot;
                    var params = prefillAt(bootstrap, "stranger", name);
                    loads[slot] = d.beginDecode(target(d, place(round, slot), name, params), 0);
                }
                revoke(d, loads);
                for (int slot = 0; slot < SLOTS; slot++) {
                    int place = place(round, slot);
                    if (ended(d, loads[slot], place)) {
                        for (int layer = 0; layer < SHAPE.layers(); layer++) {
                            for (int i = 0; i < BLOCKS; i++) {
                                assertThat(
                                                block(d, layer, place, i)
                                                        .mismatch(p.block(layer, p.source + i)))
                                        .as("byte of an earlier load at %d", place)
                                        .isEqualTo(-1);
                            }
                        }
                        give(d, place);
                    }
                }
            }
            for (int place = 0; place < PLACES; place++) {
                take(d, place);
            }
        }
        say("a peer without capability", rounds);
    }

    private static int place(int round, int slot) {
        return (round + slot) % PLACES;
    }

    private void say(String peer, int rounds) {
        System.out.println(
                "revoked "
                        + rounds
                        + " loads from "
                        + peer
                        + ", "
                        + revoked
                        + " before their end, "
                        + completed
                        + " after it: 0 foreign bytes");
        assertThat(revoked).as("revoked in time").isPositive();
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
