// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.wire.VllmMessage;
import io.kvferry.spi.Failure;
import io.kvferry.spi.config.KvRole;
import io.kvferry.toolkit.zmtp.SideChannel;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/// Says to a proxy every 3 s that this engine is there, and once that it ends: `kvferry route
/// --nccl`, or vLLM's.
///
/// Threading: any thread.
final class Registration {
    private static final Duration PERIOD = Duration.ofSeconds(3);
    private static final Duration PING_LIMIT = Duration.ofMillis(2_500);

    /// vLLM's proxy answers nothing.
    private static final Duration GOODBYE_LIMIT = Duration.ofSeconds(1);

    private final SideChannel channel;
    private final P2pSettings.Proxy proxy;
    private final String http;
    private final String zmq;

    /// The last one. Of the channel's clock, as [#over].
    private Optional<SideChannel.Call> ping = Optional.empty();

    private boolean over;

    private Registration(SideChannel channel, P2pSettings.Proxy proxy, String http, String zmq) {
        this.channel = channel;
        this.proxy = proxy;
        this.http = http;
        this.zmq = zmq;
    }

    /// @param ip of this engine's HTTP API
    /// @param zmq where its rank 0 listens
    static Registration begin(
            SideChannel channel, P2pSettings.Proxy proxy, KvRole role, String ip, String zmq) {
        var registration = new Registration(channel, proxy, ip + ":" + proxy.httpPort(), zmq);
        var ping =
                new VllmMessage.Ping(role.produces() ? "P" : "D", registration.http, zmq).encode();
        channel.after(Duration.ZERO, () -> registration.say(ping));
        channel.every(PERIOD, () -> registration.say(ping));
        return registration;
    }

    private void say(byte[] message) {
        if (!over) {
            // It is not answered: the exchange ends by its limit.
            ping =
                    Optional.of(
                            channel.exchange(
                                    proxy.address().endpoint(),
                                    message,
                                    PING_LIMIT,
                                    PING_LIMIT,
                                    SideChannel.Turn.SHORT,
                                    SideChannel.Carriage.ALONE,
                                    new Reply(_ -> {})));
        }
    }

    /// Waits until the proxy has heard it, for a second at most.
    void end() {
        var heard = new CountDownLatch(1);
        channel.after(Duration.ZERO, () -> sayGoodbye(heard));
        try {
            var _ = heard.await(2 * GOODBYE_LIMIT.toMillis(), TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void sayGoodbye(CountDownLatch heard) {
        over = true;
        // Each has a connection of its own: a ping that arrived later would register the engine
        // again.
        ping.ifPresent(SideChannel.Call::withdraw);
        channel.exchange(
                proxy.address().endpoint(),
                new VllmMessage.Goodbye(http, zmq).encode(),
                GOODBYE_LIMIT,
                GOODBYE_LIMIT,
                SideChannel.Turn.SHORT,
                new SideChannel.Answers() {
                    @Override
                    public SideChannel.Reading onAnswer(byte[] message) {
                        heard.countDown();
                        return SideChannel.Reading.DONE;
                    }

                    @Override
                    public void onLost(Failure failure) {
                        heard.countDown();
                    }
                });
    }
}
