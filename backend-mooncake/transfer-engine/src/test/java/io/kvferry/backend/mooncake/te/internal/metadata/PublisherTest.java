// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.metadata;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.MetadataServer;
import io.kvferry.backend.mooncake.te.internal.HostPort;
import io.kvferry.backend.mooncake.te.internal.handshake.HandshakeClient;

import org.junit.jupiter.api.Test;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;

class PublisherTest {
    private static final Duration SOON = Duration.ofSeconds(30);

    private static SegmentDirectory directory(MetadataServer server, Supplier<byte[]> document) {
        var config = EngineConfig.from(Map.of("metadata", server.connection(), "name", "node"));
        return new SegmentDirectory(config, new HandshakeClient(SOON, SOON, 1 << 20), document);
    }

    /// A document that is not published for lack of memory would name buffers that have gone.
    @Test
    void whatFailsForWantOfMemoryIsPublishedLater() throws Exception {
        var tries = new AtomicInteger();
        var published = new CountDownLatch(1);
        try (var server = MetadataServer.start("127.0.0.1", 0);
                var directory =
                        directory(
                                server,
                                () -> {
                                    if (tries.incrementAndGet() == 1) {
                                        throw new OutOfMemoryError("says the test");
                                    }
                                    published.countDown();
                                    return "{}".getBytes(StandardCharsets.UTF_8);
                                });
                var publisher = new Publisher(directory, "node", new HostPort("127.0.0.1", 1))) {
            publisher.changed();
            assertThat(published.await(30, TimeUnit.SECONDS)).isTrue();
        }
    }

    /// A publisher that got its thread with the first change told nobody of any change when it
    /// could not have it.
    @Test
    void withoutAThreadThereIsNone() {
        try (var server = MetadataServer.start("127.0.0.1", 0);
                var directory = directory(server, () -> new byte[0])) {
            var address = new HostPort("127.0.0.1", 1);
            assertThatThrownBy(() ->
                            new Publisher(
                                    directory,
                                    "node",
                                    address,
                                    _ -> {
                                        throw new OutOfMemoryError("no thread, says the test");
                                    }))
                    .isInstanceOf(OutOfMemoryError.class);
        }
    }
}
