// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;

import java.net.InetAddress;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

class DealerSocketTest {
    @Test
    void aCloseOfTheChannelDoesNotWaitForAPeerThatSaysNothing() throws Exception {
        try (var peer = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
                var channel = new SideChannel("test")) {
            var address = "tcp://127.0.0.1:" + peer.getLocalPort();
            var ended =
                    CompletableFuture.supplyAsync(
                            () ->
                                    catchThrowable(() ->
                                            channel.connect(
                                                    address,
                                                    "me",
                                                    Deadline.in(Duration.ofMinutes(10)))),
                            task -> Thread.ofPlatform().daemon().start(task));
            try (var silent = peer.accept()) {
                assertThat(silent.getInputStream().read()).isNotNegative();
                CompletableFuture.runAsync(channel::close).get(60, TimeUnit.SECONDS);
                assertThat(ended.get(60, TimeUnit.SECONDS))
                        .isInstanceOfSatisfying(
                                KvFerryException.class,
                                e -> assertThat(e.code()).isEqualTo(ErrorCode.CLOSED));
            }
        }
    }
}
