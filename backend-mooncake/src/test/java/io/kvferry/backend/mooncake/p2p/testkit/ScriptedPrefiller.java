// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.testkit;

import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.SOON;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.prefillAt;

import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapClient;
import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapServer;
import io.kvferry.backend.mooncake.p2p.bootstrap.WorkerRegistration;
import io.kvferry.backend.mooncake.p2p.wire.XferDecoder;
import io.kvferry.backend.mooncake.p2p.wire.XferEncoder;
import io.kvferry.backend.mooncake.p2p.wire.XferMetadata;
import io.kvferry.backend.mooncake.p2p.wire.XferResponse;
import io.kvferry.toolkit.zmtp.SideChannel;

import java.net.URI;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;

/// A prefiller of one rank that knows no capabilities and answers when the test says so.
public final class ScriptedPrefiller implements AutoCloseable {
    private final BootstrapServer bootstrap = BootstrapServer.start("127.0.0.1", 0);
    private final SideChannel channel = new SideChannel("prefiller");
    private final BlockingQueue<Asked> asked = new LinkedBlockingQueue<>();

    public record Asked(SideChannel.Asker asker, XferMetadata message) {}

    public ScriptedPrefiller() throws InterruptedException {
        this(address -> address);
    }

    /// @param listed the address that decoders are told, of the one that it listens at
    public ScriptedPrefiller(UnaryOperator<String> listed) throws InterruptedException {
        var address =
                channel.listen(
                        "127.0.0.1",
                        (asker, bytes) -> asked.add(new Asked(asker, XferDecoder.request(bytes))));
        try (var client = new BootstrapClient(SOON)) {
            client.register(
                    URI.create(base()),
                    new WorkerRegistration(
                            "other", 0, 0, 0, listed.apply(address), Optional.empty()));
        }
    }

    private String base() {
        return "http://127.0.0.1:" + bootstrap.port();
    }

    /// What a router says to the decoder.
    public Map<String, Object> params(String transfer) {
        return prefillAt(base(), "other", transfer);
    }

    /// The next request of a decoder.
    public Asked request() throws InterruptedException {
        return requestWithin(SOON.toMillis())
                .orElseThrow(() -> new AssertionError("the decoder asked for nothing"));
    }

    public Optional<Asked> requestWithin(long millis) throws InterruptedException {
        return Optional.ofNullable(asked.poll(millis, TimeUnit.MILLISECONDS));
    }

    public static void answer(Asked asked, List<String> ok, List<String> failed) {
        asked.asker()
                .answer(
                        XferEncoder.response(
                                new XferResponse(
                                        XferResponse.Status.FINISH,
                                        ok,
                                        failed,
                                        failed.isEmpty() ? "" : "because",
                                        0)));
    }

    /// Ends the side channel and all its connections.
    public void hangUp() {
        channel.close();
    }

    @Override
    public void close() {
        channel.close();
        bootstrap.close();
    }
}
