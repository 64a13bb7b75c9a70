// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Failure;
import io.kvferry.toolkit.zmtp.SideChannel.Carriage;
import io.kvferry.toolkit.zmtp.SideChannel.Turn;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.time.Duration;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/// A decoder whose connection to a prefiller ends while it carries nothing.
class IdleEndTest {
    private static final Duration SOON = Duration.ofSeconds(60);

    private final BlockingQueue<Object> heard = new LinkedBlockingQueue<>();
    private final BlockingQueue<String> ended = new LinkedBlockingQueue<>();

    private void ask(SideChannel d, String address, Carriage carriage) {
        var _ =
                d.exchange(
                        address,
                        new byte[1],
                        SOON,
                        SOON,
                        Turn.LONG,
                        carriage,
                        new SideChannel.Answers() {
                            @Override
                            public SideChannel.Reading onAnswer(byte[] message) {
                                heard.add("answer");
                                return SideChannel.Reading.DONE;
                            }

                            @Override
                            public void onLost(Failure failure) {
                                heard.add(failure);
                            }
                        });
    }

    @ParameterizedTest
    @EnumSource
    void theEndIsTold(Carriage carriage) throws Exception {
        SideChannel.Requests answering =
                new SideChannel.Requests() {
                    @Override
                    public void onRequest(SideChannel.Asker asker, byte[] message) {
                        asker.last(new byte[1]);
                    }

                    @Override
                    public boolean shares() {
                        return true;
                    }
                };
        try (var d = new SideChannel("d")) {
            d.onIdleEnd(ended::add);
            for (int round = 0; round < 2; round++) {
                String address;
                try (var p = new SideChannel("p")) {
                    address = p.listen("127.0.0.1", answering);
                    ask(d, address, carriage);
                    assertThat(heard.poll(SOON.toSeconds(), TimeUnit.SECONDS)).isEqualTo("answer");
                    assertThat(ended).as("it rests").isEmpty();
                }
                assertThat(ended.poll(SOON.toSeconds(), TimeUnit.SECONDS)).isEqualTo(address);
            }
        }
    }
}
