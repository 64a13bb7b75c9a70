// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.Access;
import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.internal.memory.Region;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.lang.foreign.Arena;
import java.lang.foreign.ValueLayout;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Map;
import java.util.Random;

class WireOutputTest {
    private static final int RANGES = 32;
    private static final int BYTES = 64 << 10;

    /// Takes what is written, or a part of it, and counts the calls. It has no descriptor.
    private static final class CountingChannel extends StuckChannel {
        final ByteBuffer taken;
        private final int mostOfACall;
        int calls;

        CountingChannel(int room, int mostOfACall) {
            this.taken = ByteBuffer.allocate(room);
            this.mostOfACall = mostOfACall;
        }

        @Override
        public long write(ByteBuffer[] sources, int offset, int length) {
            calls++;
            long before = taken.position();
            for (int i = offset; i < offset + length; i++) {
                take(sources[i], mostOfACall - (int) (taken.position() - before));
            }
            return taken.position() - before;
        }

        @Override
        public int write(ByteBuffer source) {
            calls++;
            int before = taken.position();
            take(source, mostOfACall);
            return taken.position() - before;
        }

        private void take(ByteBuffer source, int most) {
            int bytes = Math.min(most, source.remaining());
            taken.put(source.slice(source.position(), bytes));
            source.position(source.position() + bytes);
        }

        @Override
        public SocketAddress getLocalAddress() {
            return new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
        }

        @Override
        public SocketAddress getRemoteAddress() {
            return new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
        }
    }

    /// Ranges with gaps, with something between them or not, to a peer that takes all of a call or
    /// not: half a megabyte goes with a call, and all bytes go in their order.
    @ParameterizedTest
    @CsvSource({
        "0, 1000000000, 4",
        "16, 1000000000, 5",
        "0, 300000, 8",
        "16, 100000, 24",
        "0, 65536, 32"
    })
    void rangesShareCalls(int between, int mostOfACall, int most) throws Exception {
        var channel = new CountingChannel(RANGES * (BYTES + between), mostOfACall);
        channel.mayClose.countDown();
        try (var arena = Arena.ofShared();
                var watchdog = new Watchdog("test");
                var wire =
                        new Wire(
                                channel,
                                EngineConfig.from(Map.of()),
                                watchdog,
                                Staging.Pair.allocate())) {
            var memory = arena.allocate(2L * RANGES * BYTES);
            var random = new Random(between + mostOfACall);
            for (long i = 0; i < memory.byteSize(); i += Long.BYTES) {
                memory.set(ValueLayout.JAVA_LONG, i, random.nextLong());
            }
            var region = new Region(memory, Region.NOT_SHARED, Access.OPEN);
            wire.begin(Deadline.in(Duration.ofMinutes(1)));
            for (int i = 0; i < RANGES; i++) {
                for (int j = 0; j < between; j += Long.BYTES) {
                    wire.out.room(Long.BYTES).putLong(i);
                }
                wire.out.send(region, region.address + 2L * i * BYTES, BYTES, null);
            }
            wire.out.flush();
            assertThat(channel.calls).isLessThanOrEqualTo(most);
            var taken = channel.taken.flip().order(ByteOrder.LITTLE_ENDIAN);
            for (int i = 0; i < RANGES; i++) {
                for (int j = 0; j < between; j += Long.BYTES) {
                    assertThat(taken.getLong()).isEqualTo(i);
                }
                var expected = memory.asSlice(2L * i * BYTES, BYTES).asByteBuffer();
                assertThat(taken.slice(taken.position(), BYTES)).isEqualTo(expected);
                taken.position(taken.position() + BYTES);
            }
            assertThat(taken.hasRemaining()).isFalse();
        }
    }
}
