// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.testkit;

import io.kvferry.backend.mooncake.p2p.wire.XferDecoder;
import io.kvferry.backend.mooncake.p2p.wire.XferResponse;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.zmtp.SideChannel;

import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/// What a decoder of the tests heard from prefillers, in order; a lost one as an error.
public final class Heard implements SideChannel.Answers {
    private final BlockingQueue<XferResponse> responses = new LinkedBlockingQueue<>();

    @Override
    public SideChannel.Reading onAnswer(byte[] bytes) {
        var response = XferDecoder.response(bytes);
        responses.add(response);
        return response.status().reading();
    }

    @Override
    public void onLost(Failure failure) {
        responses.add(XferResponse.error("lost: " + failure));
    }

    public XferResponse next(Duration limit) throws InterruptedException {
        return Objects.requireNonNull(responses.poll(limit.toMillis(), TimeUnit.MILLISECONDS));
    }
}
