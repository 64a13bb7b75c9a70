// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketTimeoutException;
import java.net.UnknownHostException;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

class HostNamesTest {
    private static final Duration LONG = Duration.ofSeconds(30);

    private final CountDownLatch release = new CountDownLatch(1);
    private final CountDownLatch asked = new CountDownLatch(1);

    private final HostNames silent =
            new HostNames(host -> {
                asked.countDown();
                awaitRelease();
                throw new UnknownHostException(host);
            });

    private void awaitRelease() {
        try {
            var _ = release.await(60, TimeUnit.SECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    @AfterEach
    void letGo() {
        release.countDown();
    }

    @Test
    void anAddressIsNotLookedUp() throws IOException {
        assertThat(silent.addresses("127.0.0.1", Deadline.in(Duration.ZERO)))
                .containsExactly(InetAddress.ofLiteral("127.0.0.1"));
        assertThat(asked.getCount()).isOne();
    }

    @Test
    void aNameServerThatSaysNothingCostsNoMoreThanTheLimit() {
        assertThatThrownBy(() -> silent.addresses("there", Deadline.in(Duration.ofMillis(20))))
                .isInstanceOf(SocketTimeoutException.class);
        assertThat(release.getCount()).isOne();
    }

    @Test
    void anUnknownNameIsToldWithItsReason() {
        release.countDown();
        assertThatThrownBy(() -> silent.addresses("there", Deadline.in(LONG)))
                .isInstanceOf(IOException.class)
                .hasMessageContaining("there");
    }

    @Test
    void aStartWaitsForANameServerNoLongerThanItsLimit() {
        var hasty =
                new HostNames(
                        host -> {
                            awaitRelease();
                            throw new UnknownHostException(host);
                        },
                        Duration.ofMillis(20));
        assertThatThrownBy(() -> hasty.socketAddress("there", 80))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.TIMEOUT))
                .hasMessageContaining("there")
                .hasMessageContaining("name server");
        assertThat(hasty.socketAddress("[::1]", 80))
                .isEqualTo(new InetSocketAddress(InetAddress.ofLiteral("::1"), 80));
        release.countDown();
        assertThat(silent.socketAddress("there", 80))
                .as("a name that nobody knows")
                .isEqualTo(InetSocketAddress.createUnresolved("there", 80));
    }

    @Test
    void aLookUpCanBeGivenUp() throws Exception {
        var lookUp = silent.lookUp("there");
        var end =
                CompletableFuture.supplyAsync(() -> {
                    try {
                        return lookUp.await(Deadline.in(LONG)).length + " addresses";
                    } catch (IOException e) {
                        return String.valueOf(e.getMessage());
                    }
                });
        assertThat(asked.await(30, TimeUnit.SECONDS)).isTrue();
        lookUp.cancel();
        assertThat(end.get(20, TimeUnit.SECONDS)).isEqualTo("given up");
    }

    @Test
    void aCancellationEndsALookUp() throws Exception {
        var cancellation = new Cancellation();
        var end =
                CompletableFuture.supplyAsync(() -> {
                    try {
                        return silent.addresses("there", Deadline.in(LONG), cancellation).length
                                + " addresses";
                    } catch (IOException e) {
                        return String.valueOf(e.getMessage());
                    }
                });
        assertThat(asked.await(30, TimeUnit.SECONDS)).isTrue();
        cancellation.cancel(ErrorCode.CANCELLED);
        assertThat(end.get(20, TimeUnit.SECONDS)).isEqualTo("given up");
    }
}
