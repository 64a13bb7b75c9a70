// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.plane.HostPlane;
import io.kvferry.backend.nccl.wire.CacheShape;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.backend.nccl.wire.PromptMark;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.bounded.Outbox;
import io.kvferry.toolkit.bounded.SerialLoop;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

class WaitingPullsTest {
    private static final CacheShape SHAPE = new CacheShape("aa", "LBHNC/1", "float32", 0, 1, "l");
    private static final int LARGE = 60_000;

    private final SerialLoop loop = new SerialLoop("test-loop");
    private final SideChannel channel = new SideChannel("test-channel");
    private final HostPlane plane =
            HostPlane.open("test-plane", "127.0.0.1", "127.0.0.1", HostPlane.Ways.TCP);
    private final WaitingPulls waiting =
            new WaitingPulls(
                    new RankParts(
                            loop,
                            channel,
                            plane,
                            new CacheBlocks(List.of()),
                            SHAPE,
                            0,
                            7,
                            P2pSettings.from(
                                    new P2pNcclConnectorProvider().options().read("t", Map.of())),
                            new Outbox(0, () -> {})),
                    Duration.ofMinutes(5));

    @AfterEach
    void close() {
        plane.close();
        channel.close();
        loop.close();
    }

    /// Remembers what it is told.
    private static final class Asker implements SideChannel.Asker {
        private final String host;
        private final List<ErrorCode> refusals = new ArrayList<>();

        Asker(String host) {
            this.host = host;
        }

        @Override
        public boolean answer(byte[] message) {
            refusals.add(((PeerMessage.Refused) PeerMessage.decode(message)).failure().code());
            return true;
        }

        @Override
        public String host() {
            return host;
        }
    }

    private void pull(Asker asker, String transfer, int bytes) {
        var about =
                new PeerMessage.Transfer(
                        transfer, 1, 7, SHAPE, new PromptMark(1, 1), new int[] {1});
        waiting.await(
                new WaitingPulls.Asked(
                        asker, new PeerMessage.Pull(about, Grant.draw(), "127.0.0.1:1"), bytes));
    }

    @Test
    void holdsSoManyBytesInAllAndOfEachHostAndNoMore() {
        var hosts = new ArrayList<Asker>();
        long held = 0;
        for (int host = 0; host < 6; host++) {
            var asker = new Asker("10.0.0." + host);
            hosts.add(asker);
            long ofHost = 0;
            for (int i = 0; asker.refusals.isEmpty(); i++) {
                pull(asker, host + "-" + i, LARGE);
                ofHost += asker.refusals.isEmpty() ? LARGE : 0;
                assertThat(ofHost).isLessThanOrEqualTo(WaitingPulls.MOST_BYTES_OF_HOST);
            }
            assertThat(asker.refusals).containsExactly(ErrorCode.BACKPRESSURE);
            held += ofHost;
        }
        assertThat(held).isLessThanOrEqualTo(WaitingPulls.MOST_BYTES);
        assertThat(held).isGreaterThan(WaitingPulls.MOST_BYTES - 4 * LARGE);
        pull(new Asker("10.0.0.99"), "small", 1); // there may be room for this one

        // Whatever ends them gives the room back.
        assertThat(waiting.take("0-0")).isNotNull();
        waiting.refuse("0-1", new Failure(ErrorCode.CANCELLED, "says the test"));
        hosts.forEach(waiting::gone);
        var again = new Asker("10.0.0.0");
        long taken = 0;
        for (int i = 0; again.refusals.isEmpty(); i++) {
            pull(again, "again-" + i, LARGE);
            taken += LARGE;
        }
        assertThat(taken).isGreaterThan(WaitingPulls.MOST_BYTES_OF_HOST);
    }

    @Test
    void aPullAgainTakesThePlaceOfTheOneBefore() {
        var asker = new Asker("10.0.0.1");
        for (int i = 0; i < 1000; i++) {
            pull(asker, "t", LARGE);
        }
        assertThat(asker.refusals).hasSize(999).containsOnly(ErrorCode.ALREADY_ACTIVE);
    }
}
