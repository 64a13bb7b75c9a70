// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static io.kvferry.backend.mooncake.p2p.TestEngine.decodeElsewhere;
import static io.kvferry.backend.mooncake.p2p.TestEngine.prefillAt;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.p2p.TestEngine.Shape;
import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapClient;
import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapServer;
import io.kvferry.backend.mooncake.p2p.bootstrap.WorkerRegistration;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.toolkit.secret.FleetSecret;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;

/// Engines of a fleet with a secret, those who do not know it, and prefillers without capabilities.
class FleetSecretTest {
    @TempDir private Path folder;

    private Map<String, Object> secret(String text) throws IOException {
        var file = folder.resolve(text);
        Files.writeString(file, text);
        return Map.of("secret_file", file.toString(), "connector_timeout", "3s");
    }

    private static TestEngine engine(KvRole role, String id, Map<String, Object> options) {
        return new TestEngine(Shape.SMALL, role, id, options);
    }

    @Test
    void aFleetOfOneSecretHandsOverAndOthersGetNothing() throws Exception {
        var ours = secret("0123456789abcdef");
        try (var p = engine(KvRole.PRODUCER, "p", ours);
                var d = engine(KvRole.CONSUMER, "d", ours);
                var other = engine(KvRole.CONSUMER, "o", secret("fedcba9876543210"));
                var none =
                        engine(
                                KvRole.CONSUMER,
                                "n",
                                Map.<String, Object>of("connector_timeout", "3s"))) {
            var hold = p.prefill(p.request("p-1", 64, 5, decodeElsewhere("x")), 9);
            for (var stranger : new TestEngine[] {other, none}) {
                var target = stranger.request("s", 64, 20, prefillAt(p.bootstrap, "p", "x"));
                assertThat(stranger.await(stranger.beginDecode(target, 0)))
                        .isInstanceOf(Completion.Failed.class);
                stranger.assertUntouched(target);
            }
            assertThat(p.resultNow(hold)).isEmpty();
            var target = d.request("d", 64, 20, prefillAt(p.bootstrap, "p", "x"));
            assertThat(d.await(d.beginDecode(target, 0))).isInstanceOf(Completion.Completed.class);
            d.assertHolds(target, 0, 9);
            var base = URI.create(p.bootstrap);
            try (var stranger = new BootstrapClient(Duration.ofSeconds(5))) {
                assertThatThrownBy(() -> stranger.query(base)).hasMessageContaining("401");
                var fake = new WorkerRegistration("f", 1, 0, 0, "tcp://h:1", Optional.empty());
                assertThatThrownBy(() -> stranger.register(base, fake)).hasMessageContaining("401");
            }
            var known = Optional.of(FleetSecret.read(folder.resolve("0123456789abcdef")));
            try (var member = new BootstrapClient(Duration.ofSeconds(5), known)) {
                assertThat(member.query(base)).hasSize(1);
            }
        }
    }

    @Test
    void aPrefillerWithoutCapabilitiesIsRefusedWhereTheyAreRequired() throws Exception {
        try (var bootstrap = BootstrapServer.start("127.0.0.1", 0);
                var client = new BootstrapClient(Duration.ofSeconds(5));
                var d = engine(KvRole.CONSUMER, "d", Map.of("require_capability", true))) {
            var base = "http://127.0.0.1:" + bootstrap.port();
            client.register(
                    URI.create(base),
                    new WorkerRegistration("vllm", 0, 0, 0, "tcp://127.0.0.1:9", Optional.empty()));
            var target = d.request("d", 64, 20, prefillAt(base, "vllm", "x"));
            assertThat(d.await(d.beginDecode(target, 0)))
                    .isInstanceOfSatisfying(
                            Completion.Failed.class,
                            failed ->
                                    assertThat(failed.failure().code())
                                            .isEqualTo(ErrorCode.INCOMPATIBLE));
        }
    }

    @Test
    void aBootstrapAddressWithAnImpossiblePortFailsAtOnce() {
        try (var d = engine(KvRole.CONSUMER, "d", Map.of())) {
            var target = d.request("d", 64, 20, prefillAt("http://127.0.0.1:70000", "p", "x"));
            assertThat(d.await(d.beginDecode(target, 0)))
                    .isInstanceOfSatisfying(
                            Completion.Failed.class,
                            failed ->
                                    assertThat(failed.failure().code())
                                            .isEqualTo(ErrorCode.INVALID_REQUEST));
        }
    }

    @Test
    void portsAreDrawnFromTheConfiguredRange() throws Exception {
        var range = Map.<String, Object>of("min_port", 20_000, "max_port", 29_999);
        try (var p = engine(KvRole.PRODUCER, "p", range)) {
            assertThat(URI.create(Stranger.sideChannel(p)).getPort()).isBetween(20_000, 29_999);
        }
    }
}
