// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.copy;

import static io.kvferry.backend.mooncake.p2p.testkit.Outcomes.assertFailed;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.SOON;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.decodeElsewhere;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.prefillAt;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.p2p.MooncakeConnectorProvider;
import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapClient;
import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapServer;
import io.kvferry.backend.mooncake.p2p.bootstrap.EngineEntry;
import io.kvferry.backend.mooncake.p2p.bootstrap.WorkerRegistration;
import io.kvferry.backend.mooncake.p2p.testkit.Stranger;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine.Shape;
import io.kvferry.backend.mooncake.p2p.wire.Generation;
import io.kvferry.backend.mooncake.p2p.wire.XferDecoder;
import io.kvferry.backend.mooncake.p2p.wire.XferEncoder;
import io.kvferry.backend.mooncake.p2p.wire.XferResponse;
import io.kvferry.backend.mooncake.p2p.wire.XferResponse.Status;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.EnumSource.Mode;

import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// Blocks are copied as they lie: a peer that does not show that its blocks are laid out as ours is
/// refused in both roles, and one that does is served at every tensor-parallel size.
class LayoutTest {
    private static final Shape SMALL = Shape.SMALL;

    @Test
    void theConnectorRequiresTheLayoutThatVllmsDemands() {
        var config = ConnectorConfig.of("MooncakeConnector", KvRole.BOTH, "e", Map.of());
        assertThat(
                        new MooncakeConnectorProvider()
                                .capabilities(config, HostServices.NONE)
                                .requiredLayout())
                .contains(KvLayout.LBHNC);
    }

    @ParameterizedTest
    @EnumSource(mode = Mode.EXCLUDE, names = "G7")
    void decodersThatDoNotShowTheirLayoutAreRefused(Generation generation) throws Exception {
        try (var p = new TestEngine(SMALL, KvRole.PRODUCER, "p", Map.of());
                var d = new Stranger(generation, 3, 40, 1024)) {
            p.prefill(p.request("p-1", 64, 5, decodeElsewhere("x")), 3);
            var answer = d.pull(p, "x", 20, 4);
            assertThat(answer.status()).isEqualTo(Status.ERROR);
            assertThat(answer.errMsg()).contains("do not show how its blocks are laid out");
        }
    }

    @Test
    void aCacheOfAnotherLayoutIsNotGivenToVllm() throws Exception {
        var tokenMajor = SMALL.withLayout(KvLayout.LBNHC);
        try (var p = new TestEngine(tokenMajor, KvRole.PRODUCER, "p", Map.of());
                var d = new Stranger(Generation.G7, 3, 40, 1024)) {
            p.prefill(p.request("p-1", 64, 5, decodeElsewhere("x")), 3);
            assertThat(d.pull(p, "x", 20, 4).errMsg())
                    .contains("laid out as LBNHC-1 on P, and those of vLLM as LBHNC");
        }
    }

    @ParameterizedTest
    @CsvSource({
        "LBHNC, true, ''",
        "LBHNC, false, does not show that its blocks are laid out as ours",
        "LBNHC, true, does not show that its blocks are laid out as ours"
    })
    void prefillersShowTheirLayoutByRepeatingItsId(KvLayout ours, boolean echoes, String refusal)
            throws Exception {
        try (var bootstrap = BootstrapServer.start("127.0.0.1", 0);
                var prefiller = new SideChannel("prefiller");
                var client = new BootstrapClient(SOON);
                var d =
                        new TestEngine(
                                SMALL.withLayout(ours),
                                KvRole.CONSUMER,
                                "d",
                                Map.of("trust_answers", true))) {
            var address =
                    prefiller.listen(
                            "127.0.0.1",
                            (asker, bytes) -> {
                                var message = XferDecoder.request(bytes);
                                asker.answer(
                                        XferEncoder.response(
                                                new XferResponse(
                                                        Status.FINISH,
                                                        List.copyOf(message.reqBlocks().keySet()),
                                                        List.of(),
                                                        "",
                                                        echoes ? message.layoutId() : 0)));
                            });
            var base = "http://127.0.0.1:" + bootstrap.port();
            client.register(
                    URI.create(base),
                    new WorkerRegistration("vllm", 0, 0, 0, address, Optional.empty()));
            var load = d.beginDecode(d.request("d-1", 64, 20, prefillAt(base, "vllm", "x")), 0);
            if (refusal.isEmpty()) {
                assertThat(d.await(load)).isInstanceOf(Completion.Completed.class);
            } else {
                assertFailed(d.await(load), ErrorCode.INCOMPATIBLE, refusal);
            }
        }
    }

    @ParameterizedTest
    @CsvSource({"1,1,4", "2,1,4", "1,2,4", "4,2,4", "4,1,4", "1,4,4", "2,4,4", "4,2,2", "2,4,2"})
    void decodersOfVllmAreFilledAtEveryTensorParallelSize(int prefillTp, int decodeTp, int heads)
            throws Exception {
        int headBytes = 256;
        var shape = new Shape(prefillTp, heads, 2, 1, 40, headBytes, false);
        int perRank = Math.max(1, heads / decodeTp);
        try (var p = new TestEngine(shape, KvRole.PRODUCER, "p", Map.of())) {
            var hold = p.prefill(p.request("p-1", 64, 5, decodeElsewhere("x")), 3);
            for (int rank = 0; rank < decodeTp; rank++) {
                try (var d = new Stranger(Generation.G7, 2, 40, perRank * headBytes)) {
                    d.tpSize = decodeTp;
                    d.tpRank = rank;
                    var partners = TpPairing.partners(rank, decodeTp, prefillTp);
                    for (int other = partners.first();
                            other < partners.first() + partners.count();
                            other++) {
                        assertThat(d.pullFrom(worker(p, other), "x", 20, 4).okReqs())
                                .as("rank %d of rank %d", rank, other)
                                .containsExactly("d-x");
                    }
                    assertHeads(p, d, shape, TpPairing.heads(rank, decodeTp, heads));
                }
            }
            assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
        }
    }

    @ParameterizedTest
    @CsvSource({"1,1", "2,1", "1,2", "4,2", "4,1", "1,4"})
    void prefillersOfVllmFillDecodersAtEveryTensorParallelSize(int prefillTp, int decodeTp)
            throws Exception {
        int heads = 4;
        int headBytes = 256;
        var shape = new Shape(decodeTp, heads, 2, 1, 40, headBytes, false);
        var ranks = new ArrayList<Stranger>();
        try (var d = new TestEngine(shape, KvRole.CONSUMER, "d", Map.of("peer_layout", "alike"))) {
            String base = "";
            for (int rank = 0; rank < prefillTp; rank++) {
                var p = new Stranger(Generation.G7, 2, 40, heads / prefillTp * headBytes);
                ranks.add(p);
                p.heads = heads;
                p.tpSize = prefillTp;
                p.tpRank = rank;
                p.source = 10;
                p.compute(7, p.source, 4);
                base = rank == 0 ? p.bootstrap() : base;
                p.serveItsRank(base);
            }
            var target = d.request("d-1", 64, 20, prefillAt(base, "stranger", "x"));
            assertThat(d.await(d.beginDecode(target, 0))).isInstanceOf(Completion.Completed.class);
            d.assertHolds(target, 0, 7);
            d.assertUntouched(d.request("before", 16, 19, Map.of()));
            d.assertUntouched(d.request("after", 16, 24, Map.of()));
        } finally {
            ranks.forEach(Stranger::close);
        }
    }

    private static String worker(TestEngine p, int tpRank) throws InterruptedException {
        try (var client = new BootstrapClient(SOON)) {
            var engine =
                    client.query(BootstrapClient.baseAddress(p.bootstrap))
                            .values()
                            .iterator()
                            .next();
            return Optional.ofNullable(engine.workers().get(new EngineEntry.Rank(tpRank, 0)))
                    .orElseThrow();
        }
    }

    private static void assertHeads(TestEngine p, Stranger d, Shape shape, TpPairing.Heads wanted) {
        for (int layer = 0; layer < 2; layer++) {
            for (int block = 0; block < 4; block++) {
                for (int i = 0; i < wanted.count(); i++) {
                    int head = wanted.first() + i;
                    int owner = 0;
                    while (head >= shape.firstHead(owner) + shape.headsPerRank()) {
                        owner++;
                    }
                    var there =
                            p.regions
                                    .get(owner)
                                    .get(layer)
                                    .block(5 + block)
                                    .asSlice(
                                            (long) (head - shape.firstHead(owner))
                                                    * shape.headBytes(),
                                            shape.headBytes());
                    var here =
                            d.block(layer, 20 + block)
                                    .asSlice((long) i * shape.headBytes(), shape.headBytes());
                    assertThat(here.mismatch(there))
                            .as("layer %d block %d head %d", layer, block, head)
                            .isEqualTo(-1);
                }
            }
        }
    }
}
