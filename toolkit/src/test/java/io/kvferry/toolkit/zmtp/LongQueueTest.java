// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import static org.assertj.core.api.Assertions.assertThat;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.zmtp.SideChannel.Carriage;
import io.kvferry.toolkit.zmtp.SideChannel.Turn;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.ArrayList;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/// Requests that wait for their turn with one prefiller, many of which nobody wants any more.
class LongQueueTest {
    private static final Duration SOON = Duration.ofSeconds(60);
    private static final Duration LONG = Duration.ofMinutes(10);

    private final BlockingQueue<SideChannel.Asker> askers = new LinkedBlockingQueue<>();
    private final BlockingQueue<Object> heard = new LinkedBlockingQueue<>();

    private SideChannel.Call ask(SideChannel channel, String address) {
        return channel.exchange(
                address,
                new byte[1],
                SOON,
                LONG,
                Turn.LONG,
                Carriage.SHARED,
                new SideChannel.Answers() {
                    @Override
                    public SideChannel.Reading onAnswer(byte[] message) {
                        heard.add(new String(message, UTF_8));
                        return SideChannel.Reading.DONE;
                    }

                    @Override
                    public void onLost(Failure failure) {
                        heard.add(failure.code());
                    }
                });
    }

    private SideChannel.Requests keeping() {
        return new SideChannel.Requests() {
            @Override
            public void onRequest(SideChannel.Asker asker, byte[] message) {
                askers.add(asker);
            }

            @Override
            public boolean shares() {
                return true;
            }
        };
    }

    private SideChannel.Asker asker() throws InterruptedException {
        var asker = askers.poll(SOON.toSeconds(), TimeUnit.SECONDS);
        assertThat(asker).as("nobody asks").isNotNull();
        return asker;
    }

    private Object heard() throws InterruptedException {
        var item = heard.poll(SOON.toSeconds(), TimeUnit.SECONDS);
        assertThat(item).as("nothing heard").isNotNull();
        return item;
    }

    /// Each of them ends as soon as it has been sent, which gives the turn to the next one.
    @Test
    void requestsThatNobodyWantsPassOnTheirTurnAndTheConnectionGoesOn() throws Exception {
        int unwanted = Turns.MOST_QUEUED - 1;
        try (var p = new SideChannel("p");
                var d = new SideChannel("d")) {
            var address = p.listen("127.0.0.1", keeping());
            for (int i = 0; i < Turns.MOST_SHARING; i++) {
                ask(d, address);
            }
            var open = new ArrayList<SideChannel.Asker>();
            for (int i = 0; i < Turns.MOST_SHARING; i++) {
                open.add(asker());
            }
            for (int i = 0; i < unwanted; i++) {
                ask(d, address).cancel();
            }
            assertThat(heard).as("they wait").isEmpty();

            assertThat(open.getFirst().last("done".getBytes(UTF_8))).isTrue();
            assertThat(heard()).isEqualTo("done");
            for (int i = 0; i < unwanted; i++) {
                assertThat(heard()).isEqualTo(ErrorCode.CANCELLED);
            }
            for (int i = 1; i < open.size(); i++) {
                assertThat(open.get(i).last("done".getBytes(UTF_8))).isTrue();
                assertThat(heard()).isEqualTo("done");
            }
        }
    }
}
