// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.model.Model;
import io.kvferry.engine.model.ModelInfo;
import io.kvferry.engine.model.ModelRunner;
import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.engine.model.ModelSource;
import io.kvferry.engine.model.RunnerContext;
import io.kvferry.engine.model.Tokenizer;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.config.ConfigText;
import io.kvferry.multiconnector.config.Family;
import io.kvferry.serving.http.TestClient;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.memory.KvLayout;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Predicate;

/// A served engine whose connector loses its ports to another process, as shown by `/health`.
class ConnectorPortsTest {
    private static final Duration LIMIT = Duration.ofSeconds(60);
    private static final String DATA = "kvferry-te-accept-";
    private static final String HANDSHAKE = "kvferry-te-handshake-";

    @Test
    void portsThatCannotServeFailHealthUntilAllServeAgain() throws Exception {
        var settings =
                TestSettings.synthetic()
                        .kvJson(
                                """
                                {"kv_connector": "MooncakeConnector", "kv_role": "kv_producer", "engine_id": "p",
                                 "kv_connector_extra_config": {"bootstrap_port": 0}}\
                                """);
        try (var engine = new ServedEngine(settings.get())) {
            assertThat(TestClient.get(engine.port(), "/health").statusCode()).isEqualTo(200);
            try (var data = take(DATA)) {
                try (var handshake = take(HANDSHAKE)) {
                    var bad = await(engine, answer -> answer.contains(HANDSHAKE));
                    assertThat(bad).startsWith("503 ");
                    assertThat(List.of(data.isBound(), handshake.isBound())).containsOnly(true);
                    assertThat(engine.complete("still served", 2).at("/choices/0").isMissingNode())
                            .as("requests are served meanwhile")
                            .isFalse();
                }
                assertThat(
                                await(
                                        engine,
                                        answer ->
                                                answer.contains(DATA)
                                                        && !answer.contains(HANDSHAKE)))
                        .as("one of the two serves again")
                        .startsWith("503 ")
                        .contains(DATA);
            }
            // No request was sent meanwhile: a load balancer sends none to an unhealthy engine.
            assertThat(await(engine, answer -> answer.startsWith("200 "))).startsWith("200 ");
        }
    }

    /// Weights are loaded when the runner opens: minutes, only to say then that a port is taken.
    @ParameterizedTest
    @ValueSource(
            strings = {
                "{'kv_connector': 'MooncakeConnector', 'kv_role': 'kv_producer', 'kv_connector_extra_config': {'bootstrap_port': PORT}}",
                "{'kv_connector': 'P2pNcclConnector', 'kv_role': 'kv_producer', 'kv_port': PORT}"
            })
    void aPortThatIsTakenIsRefusedBeforeTheWeightsAreLoaded(String json) throws Exception {
        var runners = new CountingProvider();
        var plugins = AssembledEngine.catalog(Optional.empty());
        try (var taken = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
                var kvferry = Kvferry.open(plugins, _ -> {}, Kvferry.STAGING_BYTES)) {
            var port = String.valueOf(taken.getLocalPort());
            var text = json.replace('\'', '"').replace("PORT", port);
            var kv = kvferry.kv(ConfigText.of(Family.KV, text));
            var config =
                    EngineConfig.of(runners, Path.of(""), Map.of())
                            .host(kvferry.services())
                            .kvConnector(kv.provider(), kv.config());
            assertThatThrownBy(() -> Engine.open(config))
                    .isInstanceOf(KvFerryException.class)
                    .hasMessageContaining(port);
        }
        assertThat(runners.opened).hasValue(0);
    }

    /// The synthetic runner, and how many were opened.
    private static final class CountingProvider implements ModelRunnerProvider {
        private final ModelRunnerProvider synthetic = new SyntheticProvider();
        private final AtomicInteger opened = new AtomicInteger();

        @Override
        public String name() {
            return synthetic.name();
        }

        @Override
        public String description() {
            return synthetic.description();
        }

        @Override
        public SpiVersion.Range spiVersions() {
            return synthetic.spiVersions();
        }

        @Override
        public OptionSchema options() {
            return synthetic.options();
        }

        @Override
        public Model open(ModelSource source) {
            var model = synthetic.open(source);
            return new Model() {
                @Override
                public ModelInfo info() {
                    return model.info();
                }

                @Override
                public Set<KvLayout> layouts() {
                    return model.layouts();
                }

                @Override
                public Tokenizer tokenizer() {
                    return model.tokenizer();
                }

                @Override
                public ModelRunner openRunner(RunnerContext context) {
                    opened.incrementAndGet();
                    return model.openRunner(context);
                }

                @Override
                public void close() {
                    model.close();
                }
            };
        }
    }

    /// Has the connector lose a port, and takes it before it is bound again.
    private static ServerSocket take(String acceptor) throws IOException {
        for (var limit = Deadline.in(LIMIT); !limit.passed(); ) {
            var thread =
                    Thread.getAllStackTraces().keySet().stream()
                            .filter(each -> each.getName().startsWith(acceptor))
                            .findFirst()
                            .orElseThrow();
            int port = Integer.parseInt(thread.getName().substring(acceptor.length()));
            thread.interrupt(); // closes the channel that it accepts on
            var socket = new ServerSocket();
            try {
                socket.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
                return socket;
            } catch (BindException e) {
                socket.close();
            }
        }
        throw new AssertionError("the port was always bound again first");
    }

    /// Status and reason of `/health` once they are as wanted, or the last ones.
    private static String await(ServedEngine engine, Predicate<String> wanted) throws Exception {
        var answer = "";
        for (var limit = Deadline.in(LIMIT); !limit.passed(); ) {
            var response = TestClient.get(engine.port(), "/health");
            var reason = TestClient.json(response.body()).path("reason").asString("");
            answer = response.statusCode() + " " + reason;
            if (wanted.test(answer)) {
                return answer;
            }
            TimeUnit.MILLISECONDS.sleep(20); // /health is all there is; the deadline decides
        }
        return answer;
    }
}
