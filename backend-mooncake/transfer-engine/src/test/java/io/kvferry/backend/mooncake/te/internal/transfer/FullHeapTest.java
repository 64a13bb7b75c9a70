// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.Notification;
import io.kvferry.backend.mooncake.te.internal.tcp.Watchdog;
import io.kvferry.toolkit.memory.FullHeap;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/// What comes back, or comes in, while there is no memory takes the place of nothing else for good.
class FullHeapTest {
    private static final int MANY = 40;

    @TempDir Path folder;

    @Test
    void lanesThatComeBackAreUsedAgain() throws Exception {
        assertThat(FullHeap.run(folder, 48, Duration.ofSeconds(120), Lanes.class))
                .endsWith(
                        "came back: true",
                        "lanes: " + MANY,
                        "used again: " + MANY,
                        "after a sweep: " + MANY);
    }

    @Test
    void aHostsRoomForNotificationsIsNotLost() throws Exception {
        assertThat(FullHeap.run(folder, 48, Duration.ofSeconds(120), Inbox.class))
                .endsWith("refused: true", "taken: " + Inbox.MOST);
    }

    static final class Lanes {
        private Lanes() {}

        public static void main(String[] args) throws IOException {
            var config = EngineConfig.from(Map.of("lanes-per-peer", Integer.toString(MANY)));
            try (var watchdog = new Watchdog("test");
                    var server = new ServerSocket(0, 64, InetAddress.getLoopbackAddress())) {
                var peer = PeerTest.peer(server.getLocalPort(), config, watchdog);
                peer.giveBack(LanePoolTest.borrow(peer), true); // all of it has run once
                var lanes = borrow(peer);
                boolean[] back = {false};
                var _ =
                        FullHeap.during(() -> {
                            for (int i = 0; i < MANY; i++) {
                                peer.giveBack(lanes.get(i), true);
                            }
                            back[0] = true;
                        });
                System.out.println("came back: " + back[0]);
                System.out.println("lanes: " + peer.lanes());
                var again = borrow(peer);
                again.retainAll(lanes);
                System.out.println("used again: " + again.size());
                again.forEach(lane -> peer.giveBack(lane, true));
                var _ = FullHeap.during(() -> peer.sweep(Duration.ZERO, Duration.ofHours(1)));
                System.out.println("after a sweep: " + borrow(peer).size());
                peer.drop();
            }
        }

        private static List<Peer.Lane> borrow(Peer peer) throws IOException {
            var lanes = new ArrayList<Peer.Lane>();
            for (int i = 0; i < MANY; i++) {
                lanes.add(LanePoolTest.borrow(peer));
            }
            return lanes;
        }
    }

    static final class Inbox {
        private static final String HOST = "h";
        private static final int MOST = 8;

        private Inbox() {}

        public static void main(String[] args) {
            var notifier = NotifierTest.notifier(MOST, 1 << 20);
            var one = new Notification("a", "1");
            boolean refused = false;
            for (int i = 0; i < 2 * MOST; i++) {
                notifier.accept(one, HOST); // all of it has run once, and the host has a share
                refused |=
                        FullHeap.during(() -> {
                            boolean room = true;
                            while (room) {
                                room = notifier.accept(one, HOST);
                            }
                        });
                notifier.take(MOST);
            }
            System.out.println("refused: " + refused);
            int taken = 0;
            while (notifier.accept(one, HOST)) {
                taken++;
            }
            System.out.println("taken: " + taken);
        }
    }
}
