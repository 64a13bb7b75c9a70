// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/// How peers share a queue.
class FairRoomTest {
    private static int fill(FairRoom room, String peer, long bytes) {
        int taken = 0;
        while (room.take(peer, bytes)) {
            taken++;
        }
        return taken;
    }

    @Test
    void onePeerTakesHalfOfThePlacesAndTheNextOnesFindSome() {
        var room = new FairRoom(1_000, 1 << 20);
        assertThat(fill(room, "a", 1)).isEqualTo(500);
        assertThat(fill(room, "b", 1)).isEqualTo(250);
        assertThat(fill(room, "c", 1)).isEqualTo(125);
        for (int i = 0; i < 500; i++) {
            room.give("a", 1);
        }
        assertThat(fill(room, "d", 1)).isPositive();
        assertThat(fill(room, "a", 1)).isPositive();
    }

    @Test
    void onePeerTakesHalfOfTheBytes() {
        var room = new FairRoom(1_000, 1_000);
        assertThat(fill(room, "a", 100)).isEqualTo(5);
        assertThat(room.take("b", 501)).as("more than is free").isFalse();
        assertThat(room.take("b", 500)).as("the first, whatever its size").isTrue();
        assertThat(room.take("c", 1)).isFalse();
        room.give("b", 500);
        assertThat(room.take("c", 400)).isTrue();
    }

    /// An empty message is not always given back.
    @Test
    void whoTakesNothingLeavesNothing() {
        var room = new FairRoom(10, 10);
        for (int i = 0; i < 1000; i++) {
            assertThat(room.take("p" + i, 0, 0)).isTrue();
        }
        assertThat(room.peers()).isZero();
        room.give("p", 0, 0);
    }

    @Test
    void everythingComesBack() {
        var random = new Random(7);
        var room = new FairRoom(64, 4_096);
        record Piece(String peer, long bytes) {}
        List<Piece> held = new ArrayList<>();
        for (int i = 0; i < 10_000; i++) {
            var piece = new Piece("p" + random.nextInt(5), random.nextInt(300));
            if (random.nextBoolean() && room.take(piece.peer(), piece.bytes())) {
                held.add(piece);
            } else if (!held.isEmpty()) {
                var given = held.remove(random.nextInt(held.size()));
                room.give(given.peer(), given.bytes());
            }
            assertThat(held).hasSizeLessThanOrEqualTo(64);
            assertThat(held.stream().mapToLong(Piece::bytes).sum()).isLessThanOrEqualTo(4_096);
        }
        held.forEach(piece -> room.give(piece.peer(), piece.bytes()));
        assertThat(fill(room, "a", 0)).isEqualTo(32);
        assertThat(room.take("b", 4_096)).isTrue();
    }
}
