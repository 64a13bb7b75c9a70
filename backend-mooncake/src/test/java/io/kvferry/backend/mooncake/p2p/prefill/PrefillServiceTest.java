// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.prefill;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.p2p.common.MooncakeSettings;
import io.kvferry.backend.mooncake.p2p.copy.CopyPlanner;
import io.kvferry.backend.mooncake.p2p.plane.OwnEngine;
import io.kvferry.backend.mooncake.p2p.wire.XferDecoder;
import io.kvferry.backend.mooncake.p2p.wire.XferResponse;
import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.RankInfo;
import io.kvferry.toolkit.bounded.Outbox;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/// How a prefiller's service treats decoders that ask for more than it can take in.
class PrefillServiceTest {
    private static final byte[] GARBAGE = {(byte) 0xC1};

    /// A decoder that keeps what it is told.
    private static final class Decoder implements SideChannel.Asker {
        private final String host;
        private final BlockingQueue<XferResponse> told = new LinkedBlockingQueue<>();

        Decoder(String host) {
            this.host = host;
        }

        @Override
        public boolean answer(byte[] message) {
            return told.add(XferDecoder.response(message));
        }

        @Override
        public String host() {
            return host;
        }
    }

    private static PrefillService service(SideChannel channel, JavaTransferEngine engine) {
        var group =
                new KvCacheGroup(
                        0,
                        KvCacheGroup.Kind.FULL_ATTENTION,
                        new KvFormat.Heads(DType.UINT8, KvLayout.LBHNC, 1, 8),
                        List.of("layer"),
                        16,
                        128);
        return new PrefillService(
                "prefill",
                channel,
                new OwnEngine(engine, false),
                new CopyPlanner(
                        List.of(),
                        new KvCacheSpec(List.of(group), 1),
                        new RankInfo(0, 1, 0, 1, 0, 1),
                        "LBHNC",
                        false),
                "",
                MooncakeSettings.from(MooncakeSettings.SCHEMA.read("test", Map.of())),
                new Outbox(0, () -> {}));
    }

    @Test
    void aHostThatAsksWithoutEndLeavesRoomForOthersAndHearsOfEachMessage() throws Exception {
        var busy = new CountDownLatch(1);
        var released = new CountDownLatch(1);
        var slow =
                new SideChannel.Asker() {
                    @Override
                    public boolean answer(byte[] message) {
                        busy.countDown();
                        try {
                            return released.await(60, TimeUnit.SECONDS);
                        } catch (InterruptedException e) {
                            Thread.currentThread().interrupt();
                            return false;
                        }
                    }

                    @Override
                    public String host() {
                        return "slow";
                    }
                };
        try (var channel = new SideChannel("channel");
                var engine =
                        JavaTransferEngine.start(
                                EngineConfig.from(Map.of("shared-memory", "false")));
                var service = service(channel, engine)) {
            service.onRequest(slow, GARBAGE);
            assertThat(busy.await(60, TimeUnit.SECONDS)).isTrue();

            var greedy = new ArrayList<Decoder>();
            do {
                greedy.add(new Decoder("greedy"));
                service.onRequest(greedy.getLast(), GARBAGE);
            } while (greedy.getLast().told.isEmpty() && greedy.size() < 1 << 16);
            assertThat(greedy.getLast().told.element().errMsg()).contains("overloaded");

            var other = new Decoder("other");
            service.onRequest(other, GARBAGE);
            assertThat(other.told).as("refused at once").isEmpty();

            released.countDown();
            for (var decoder : greedy) {
                var answer = decoder.told.poll(60, TimeUnit.SECONDS);
                assertThat(answer).isNotNull();
                assertThat(answer.status()).isEqualTo(XferResponse.Status.ERROR);
                assertThat(decoder.told).as("answered twice").isEmpty();
            }
            var answer = other.told.poll(60, TimeUnit.SECONDS);
            assertThat(answer).isNotNull();
            assertThat(answer.errMsg()).doesNotContain("overloaded");
        }
    }
}
