// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.decodeElsewhere;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.prefillAt;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine.Shape;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.zeromq.ZMQ;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/// The side channel with CURVE keys: who has none, or others, gets nothing.
class CurveTest {
    private static final ZMQ.Curve.KeyPair FLEET = ZMQ.Curve.generateKeyPair();
    private static final ZMQ.Curve.KeyPair OTHER = ZMQ.Curve.generateKeyPair();

    private static Map<String, Object> keys(ZMQ.Curve.KeyPair own, String server) {
        return Map.of(
                "curve_public_key",
                own.publicKey,
                "curve_secret_key",
                own.secretKey,
                "curve_server_key",
                server);
    }

    /// With short limits for peers that do not answer.
    private static Map<String, Object> hasty(Map<String, Object> keys) {
        var all = new HashMap<>(keys);
        all.put("connector_timeout", "2s");
        return all;
    }

    private static Map<String, Object> fleet() {
        return Map.of("curve_public_key", FLEET.publicKey, "curve_secret_key", FLEET.secretKey);
    }

    private static TestEngine prefiller(Map<String, Object> options) {
        return new TestEngine(Shape.SMALL, KvRole.PRODUCER, "p", options);
    }

    private static void assertServed(TestEngine p, Map<String, Object> decoder, String transfer) {
        try (var d = new TestEngine(Shape.SMALL, KvRole.CONSUMER, "d", decoder)) {
            p.prefill(p.request("p-" + transfer, 70, 5, decodeElsewhere(transfer)), 3);
            var target = d.request("d", 70, 20, prefillAt(p.bootstrap, "p", transfer));
            assertThat(d.await(d.beginDecode(target, 0))).isInstanceOf(Completion.Completed.class);
            d.assertHolds(target, 0, 3);
        }
    }

    @Test
    void aFleetOfOneKeyHandsOver() {
        try (var p = prefiller(fleet())) {
            assertServed(p, fleet(), "x");
        }
    }

    @Test
    void aPrefillerServesTheDecodersThatItLists() {
        var options =
                Map.<String, Object>of(
                        "curve_public_key",
                        FLEET.publicKey,
                        "curve_secret_key",
                        FLEET.secretKey,
                        "curve_client_keys",
                        List.of(OTHER.publicKey));
        try (var p = prefiller(options)) {
            assertServed(p, keys(OTHER, FLEET.publicKey), "x");
        }
    }

    static Stream<Map<String, Object>> strangers() {
        return Stream.of(
                hasty(Map.of()), // no key at all
                hasty(keys(OTHER, FLEET.publicKey)), // knows the prefiller's, is unknown itself
                hasty(keys(FLEET, OTHER.publicKey))); // takes somebody else for the prefiller
    }

    @ParameterizedTest
    @MethodSource("strangers")
    void aDecoderWithoutTheRightKeysGetsNothingAndNobodyElseMinds(Map<String, Object> options) {
        try (var p = prefiller(fleet());
                var d = new TestEngine(Shape.SMALL, KvRole.CONSUMER, "stranger", options)) {
            var hold = p.prefill(p.request("p-1", 70, 5, decodeElsewhere("x")), 9);
            var target = d.request("d", 70, 20, prefillAt(p.bootstrap, "p", "x"));
            assertThat(d.await(d.beginDecode(target, 0)))
                    .isInstanceOfSatisfying(
                            Completion.Failed.class,
                            failed ->
                                    assertThat(failed.failure().code())
                                            .isIn(
                                                    ErrorCode.PEER_LOST,
                                                    ErrorCode.TIMEOUT,
                                                    ErrorCode.PEER_REFUSED));
            d.assertUntouched(target);
            assertThat(p.resultNow(hold)).isEmpty();
            assertServed(p, fleet(), "y");
        }
    }

    @Test
    void aDecoderWithKeysRefusesAPrefillerInTheClear() {
        try (var p = prefiller(Map.of());
                var d =
                        new TestEngine(
                                Shape.SMALL,
                                KvRole.CONSUMER,
                                "d",
                                hasty(keys(FLEET, FLEET.publicKey)))) {
            p.prefill(p.request("p-1", 70, 5, decodeElsewhere("x")), 9);
            var target = d.request("d", 70, 20, prefillAt(p.bootstrap, "p", "x"));
            assertThat(d.await(d.beginDecode(target, 0))).isInstanceOf(Completion.Failed.class);
            d.assertUntouched(target);
        }
    }

    @Test
    void halfAKeyIsRefusedAtTheStart() {
        assertThatThrownBy(() -> prefiller(Map.of("curve_server_key", FLEET.publicKey)))
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("curve_secret_key");
        assertThatThrownBy(() ->
                        prefiller(
                                Map.of(
                                        "curve_public_key",
                                        FLEET.publicKey,
                                        "curve_secret_key",
                                        "short-secret")))
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("curve_secret_key")
                .hasMessageNotContaining("short-secret");
    }
}
