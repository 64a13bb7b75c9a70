// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.remote.StoreProtocol.Operation;
import io.kvferry.spi.wire.WireWriter;
import io.kvferry.toolkit.zmtp.SideChannel;

import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/// An owner that opens sessions once it is there, gives signs of life, and says nothing else.
public final class SilentOwner implements AutoCloseable {
    private final SideChannel channel = new SideChannel("silent-owner");
    private final CountDownLatch asked = new CountDownLatch(1);
    private final String address = channel.listen("127.0.0.1", this::onRequest);
    private volatile boolean there;

    /// `host:port`
    public String address() {
        return address.substring("tcp://".length());
    }

    /// From now on.
    public void isThere() {
        there = true;
    }

    private void onRequest(SideChannel.Asker asker, byte[] message) {
        var in = StoreProtocol.open(message);
        switch (Operation.of(in.u8())) {
            case HELLO -> asker.answer(hello().toByteArray());
            case PING ->
                    asker.answer(
                            StoreProtocol.answer(0).bool(false).i32(0).bool(false).toByteArray());
            default -> asked.countDown();
        }
    }

    private WireWriter hello() {
        return there
                ? StoreProtocol.answer(0)
                        .i64(1)
                        .i64(1)
                        .string("127.0.0.1:1")
                        .string("")
                        .string("segment")
                        .i64(Duration.ofMinutes(10).toNanos())
                : StoreProtocol.answer(StoreCode.UNAVAILABLE_IN_CURRENT_STATUS.number());
    }

    /// Until it has been asked what it does not answer.
    public void awaitQuestion() throws InterruptedException {
        assertThat(asked.await(60, TimeUnit.SECONDS)).as("it is asked").isTrue();
    }

    @Override
    public void close() {
        channel.close();
    }
}
