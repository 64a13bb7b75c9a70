// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapServer;
import io.kvferry.backend.mooncake.p2p.testkit.CutLink;
import io.kvferry.backend.mooncake.p2p.testkit.SideChannelOption;
import io.kvferry.spi.Failure;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.tck.kv.KvConnectorContract;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.junit.jupiter.api.BeforeAll;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/// The connector contract, prefiller and decoder over the real transfer engine; a bootstrap service
/// outside of both.
class MooncakeConnectorTckTest extends KvConnectorContract {
    /// What the JDK opens once for virtual threads and sockets is no leak of the connector's.
    @BeforeAll
    static void warmUp() throws InterruptedException {
        try (var server = new SideChannel("warm-up-p");
                var client = new SideChannel("warm-up-d")) {
            var address = server.listen("127.0.0.1", (asker, message) -> asker.answer(message));
            var heard = new CountDownLatch(1);
            client.exchange(
                    address,
                    new byte[1],
                    Duration.ofSeconds(20),
                    Duration.ofSeconds(20),
                    new SideChannel.Answers() {
                        @Override
                        public SideChannel.Reading onAnswer(byte[] message) {
                            heard.countDown();
                            return SideChannel.Reading.DONE;
                        }

                        @Override
                        public void onLost(Failure failure) {
                            throw failure.toException();
                        }
                    });
            assertThat(heard.await(20, TimeUnit.SECONDS)).isTrue();
        }
    }

    private Optional<BootstrapServer> bootstrap = Optional.empty();

    /// To the bootstrap service, without which no load can begin.
    private Optional<CutLink> link = Optional.empty();

    @Override
    protected KvConnectorProvider provider() {
        return new MooncakeConnectorProvider();
    }

    @Override
    protected Map<String, Object> options() {
        if (link.isEmpty()) {
            var server = BootstrapServer.start("127.0.0.1", 0);
            bootstrap = Optional.of(server);
            link = Optional.of(link(server.port()));
        }
        return Map.of(
                "bootstrap_server_address",
                "127.0.0.1:" + link.get().port(),
                "data_parallel_rank",
                -1,
                "side_channel",
                SideChannelOption.option());
    }

    private static CutLink link(int port) {
        try {
            return new CutLink(port, Long.MAX_VALUE, Long.MAX_VALUE, false);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    protected Optional<Map<String, Object>> optionsWithBound(int transfers) {
        var options = new HashMap<>(options());
        options.put("max_loads", transfers);
        return Optional.of(options);
    }

    @Override
    protected KvRole producerRole() {
        return KvRole.PRODUCER;
    }

    @Override
    protected KvRole consumerRole() {
        return KvRole.CONSUMER;
    }

    /// An engine that has loaded nothing yet does not know where the prefillers are.
    @Override
    protected boolean stallStore() {
        link.ifPresent(CutLink::hold);
        return link.isPresent();
    }

    @Override
    protected void resumeStore() {
        link.ifPresent(CutLink::release);
    }

    @Override
    protected boolean loadsFromOtherTpSizes() {
        return true;
    }

    @Override
    protected void releaseStore() {
        bootstrap.ifPresent(BootstrapServer::close);
        link.ifPresent(MooncakeConnectorTckTest::close);
    }

    private static void close(CutLink link) {
        try {
            link.close();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
