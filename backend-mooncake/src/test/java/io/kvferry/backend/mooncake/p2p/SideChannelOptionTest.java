// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.decodeElsewhere;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.prefillAt;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.p2p.testkit.FakeRequest;
import io.kvferry.backend.mooncake.p2p.testkit.SideChannelOption;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine.Shape;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;

import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.util.ArrayList;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/// The option `side_channel`: the tests of hand-overs again where each request has a connection of
/// its own (others run with the default, one connection for all), and those of prefillers and
/// decoders that differ in it.
class SideChannelOptionTest {
    @BeforeAll
    static void doNotShare() {
        SideChannelOption.set("single");
    }

    @AfterAll
    static void shareAgain() {
        SideChannelOption.reset();
    }

    @Nested
    class HandOvers extends HandOverTest {
        /// Waits for a prefiller that is not registered, to which there is no connection.
        @Override
        @Test
        @Tag("soak")
        void unreachableOrUnknownPrefillersFailTheLoad() {
            super.unreachableOrUnknownPrefillersFailTheLoad();
        }
    }

    @Nested
    class Revocations extends RevocationTest {}

    @Nested
    class Curve extends CurveTest {}

    @Nested
    @Tag("soak")
    class Secrets extends FleetSecretTest {}

    @Nested
    @Tag("soak")
    class HostilePeers extends HostilePeersTest {}

    @Nested
    @Tag("soak")
    class Kills extends KillTest {}

    @Nested
    @Tag("soak")
    class EngineKills extends EngineKillTest {}

    @Nested
    @Tag("soak")
    class Backends extends HostBackendsTest {}

    @Nested
    @Tag("soak")
    class Contract extends MooncakeConnectorTckTest {}

    @Nested
    @Tag("soak")
    class BackendsContract extends HostBackendsTckTest {}

    private static TestEngine prefiller(String way) {
        return new TestEngine(Shape.SMALL, KvRole.PRODUCER, "p", Map.of("side_channel", way));
    }

    private static TestEngine decoder(String way) {
        return new TestEngine(Shape.SMALL, KvRole.CONSUMER, "d", Map.of("side_channel", way));
    }

    @ParameterizedTest
    @CsvSource({"auto,single", "single,auto", "auto,auto", "single,single"})
    void prefillersAndDecodersNeedNotAgree(String prefills, String decodes) {
        try (var p = prefiller(prefills);
                var d = decoder(decodes)) {
            var loads = new ArrayList<TransferId>();
            var holds = new ArrayList<TransferId>();
            var targets = new ArrayList<FakeRequest>();
            for (int i = 0; i < 12; i++) {
                var name = "x" + i;
                targets.add(d.request("d" + i, 70, 5 * i, prefillAt(p.bootstrap, "p", name)));
                loads.add(d.beginDecode(targets.get(i), 0));
                holds.add(p.prefill(p.request("p" + i, 70, 5 * i, decodeElsewhere(name)), 7 + i));
            }
            for (int i = 0; i < 12; i++) {
                assertThat(d.await(loads.get(i))).isInstanceOf(Completion.Completed.class);
                d.assertHolds(targets.get(i), 0, 7 + i);
                assertThat(p.await(holds.get(i))).isInstanceOf(Completion.Completed.class);
            }
        }
    }

    @Test
    void aRequestWhoseLoadIsRevokedWaitsForItsPrefillNoLonger() {
        try (var p = prefiller("auto");
                var d = decoder("auto")) {
            var first = d.request("d-1", 70, 20, prefillAt(p.bootstrap, "p", "first"));
            assertThat(p.prefill(p.request("p-1", 70, 5, decodeElsewhere("first")), 3)).isNotNull();
            assertThat(d.await(d.beginDecode(first, 0))).isInstanceOf(Completion.Completed.class);

            var load =
                    d.beginDecode(d.request("d-2", 70, 30, prefillAt(p.bootstrap, "p", "late")), 0);
            d.step();
            d.revoke(load);
            assertThat(d.await(load)).isInstanceOf(Completion.Revoked.class);
            var limit = Deadline.in(TestEngine.SOON);
            while (p.stats.counters().getOrDefault("mooncake_num_abandoned_reqs", 0L) == 0
                    && p.stats.counters().getOrDefault("mooncake_num_failed_transfers", 0L) == 0
                    && !limit.passed()) {
                p.step();
                d.step();
                LockSupport.parkNanos(1_000_000);
            }
            assertThat(p.stats.counters()).containsKey("mooncake_num_abandoned_reqs");
        }
    }

    @Test
    void moreLoadsAreOpenThanThereWereConnections() {
        try (var p = prefiller("auto");
                var d = decoder("auto")) {
            var loads = new ArrayList<TransferId>();
            for (int i = 0; i < 1_024; i++) { // one step each, so that each is a request
                var request = d.request("d" + i, 16, i % 80, prefillAt(p.bootstrap, "p", "x" + i));
                loads.add(d.beginDecode(request, 0));
                d.step();
            }
            for (int i = 0; i < 1_024; i++) {
                assertThat(p.prefill(p.request("p" + i, 16, i % 80, decodeElsewhere("x" + i)), 1))
                        .isNotNull();
            }
            for (var load : loads) {
                assertThat(d.await(load)).isInstanceOf(Completion.Completed.class);
            }
        }
    }
}
