// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import static io.kvferry.backend.nccl.engines.P2pEngines.GENERATED;
import static io.kvferry.backend.nccl.engines.P2pEngines.SOON;
import static io.kvferry.backend.nccl.engines.P2pEngines.TOKENS;
import static io.kvferry.backend.nccl.engines.P2pEngines.alone;
import static io.kvferry.backend.nccl.engines.P2pEngines.assertNothingHeld;
import static io.kvferry.backend.nccl.engines.P2pEngines.assertNothingStaged;
import static io.kvferry.backend.nccl.engines.P2pEngines.finished;
import static io.kvferry.backend.nccl.engines.P2pEngines.freePorts;
import static io.kvferry.backend.nccl.engines.P2pEngines.host;
import static io.kvferry.backend.nccl.engines.P2pEngines.loaded;
import static io.kvferry.backend.nccl.engines.P2pEngines.prompt;
import static io.kvferry.backend.nccl.engines.P2pEngines.tokens;
import static io.kvferry.backend.nccl.engines.P2pEngines.tokensAlone;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.VllmP2p;
import io.kvferry.backend.nccl.engines.P2pEngines;
import io.kvferry.backend.nccl.gpu.NcclDouble;
import io.kvferry.backend.nccl.gpu.NcclDouble.Knob;
import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.backend.nccl.wire.RequestAddresses;
import io.kvferry.engine.Engine;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.toolkit.staging.BuddyStagingPool;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/// Whole engines with protocol 0 and vLLM's own P2pNcclEngine in another process: what one engine
/// prefills goes to vLLM's, and from there to the other engine, whose model verifies every byte.
/// Then vLLM's is killed in the middle of a tensor, and comes back under its address.
@Tag("interop")
@Timeout(300)
class VllmEngineHandOverTest {
    private static final int LAYERS = 4;

    private final NcclDouble nccl = NcclDouble.load();
    private int own;
    private int vllms;

    @BeforeEach
    void reset() throws IOException {
        nccl.reset();
        nccl.set(Knob.ACROSS, 1);
        own = freePorts(1);
        vllms = freePorts(1);
    }

    @AfterEach
    void nothingIsLeft() {
        nccl.assertClean();
        nccl.reset(); // other tests have both ranks in this process
    }

    private VllmEngine vllm(String mode, boolean prefills) throws IOException {
        return new VllmEngine(nccl, vllms, mode, prefills);
    }

    private Engine engine(KvRole role, int port, String mode, HostServices host) {
        var options = VllmP2p.options(mode, port, "flash_attn");
        options.put("push_timeout", "2s"); // for so long a peer that has failed is left alone
        options.put("hold_timeout", "5s");
        return P2pEngines.open(role, 1, options, host, new VllmP2p(nccl));
    }

    private static RequestHandle submit(Engine engine, int[] prompt, String id, int tokens) {
        return engine.submit(
                GenerationRequest.of(prompt, SamplingParams.greedy(tokens))
                        .withFailurePolicy(LoadFailurePolicy.RECOMPUTE)
                        .withExternalId(id));
    }

    /// As vLLM's proxy makes them.
    private static String id(int prefiller, int decoder) {
        return RequestAddresses.draw(
                        new PeerAddress("127.0.0.1", prefiller),
                        new PeerAddress("127.0.0.1", decoder))
                .transferId();
    }

    /// As vLLM's server makes it of that.
    private static String tensorId(String id, int layer) {
        return "cmpl-" + id + "-0#model.layers." + layer + ".self_attn.attn";
    }

    private List<VllmEngine.Tensor> receive(VllmEngine vllm, String id) {
        var tensors = new ArrayList<VllmEngine.Tensor>();
        for (int layer = 0; layer < LAYERS; layer++) {
            vllm.receive(tensorId(id, layer), "127.0.0.1:" + own);
            vllm.received().ifPresent(tensors::add);
        }
        return tensors;
    }

    private static void send(
            VllmEngine vllm, List<VllmEngine.Tensor> tensors, String id, int decoder) {
        for (int layer = 0; layer < LAYERS; layer++) {
            vllm.send(tensorId(id, layer), tensors.get(layer), "127.0.0.1:" + decoder);
        }
    }

    /// What vLLM holds of that prompt after a prefill here.
    private List<VllmEngine.Tensor> prefilled(String mode, int[] prompt) throws IOException {
        try (var vllm = vllm(mode, false);
                var p = engine(KvRole.PRODUCER, own, mode, HostServices.NONE)) {
            var id = id(own, vllms);
            finished(submit(p, prompt, id, 1));
            var tensors = receive(vllm, id);
            assertThat(tensors).hasSize(LAYERS);
            assertThat(vllm.misuse()).isEqualTo("\"\"");
            assertNothingHeld(p);
            return tensors;
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"PUT", "PUT_ASYNC", "GET"})
    void whatGoesThroughVllmIsLoaded(String mode) throws IOException {
        int decoder = freePorts(1);
        try (var pool = new BuddyStagingPool(64 << 20);
                var alone = alone(Map.of());
                var receives = vllm(mode, false);
                var p = engine(KvRole.PRODUCER, own, mode, HostServices.NONE);
                var d = engine(KvRole.CONSUMER, decoder, mode, host(pool))) {
            for (int i = 0; i < 3; i++) {
                int[] prompt = prompt(i, TOKENS + i);
                var there = id(own, vllms);
                finished(submit(p, prompt, there, 1));
                var tensors = receive(receives, there);
                assertThat(tensors).hasSize(LAYERS);
                var back = id(vllms, decoder);
                send(receives, tensors, back, decoder);
                for (int layer = 0; layer < LAYERS; layer++) {
                    assertThat(receives.sent()).isTrue();
                }
                var outcome = finished(submit(d, prompt, back, GENERATED));
                assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt));
                assertThat(loaded(outcome)).isGreaterThanOrEqualTo(prompt.length - 1);
            }
            assertThat(receives.misuse()).isEqualTo("\"\"");
            assertNothingHeld(p);
            assertNothingHeld(d);
            assertNothingStaged(pool);
        }
    }

    /// It has answered a PUT, or a GET, and is killed before ncclSend.
    @ParameterizedTest
    @ValueSource(strings = {"PUT", "PUT_ASYNC", "GET"})
    void aPrefillerThatIsKilledCostsNoTokenAndMayComeBack(String mode) throws IOException {
        int[] prompt = prompt(1, TOKENS);
        var tensors = prefilled(mode, prompt);
        try (var pool = new BuddyStagingPool(64 << 20);
                var alone = alone(Map.of());
                var d = engine(KvRole.CONSUMER, own, mode, host(pool))) {
            var expected = tokensAlone(alone, prompt);
            try (var vllm = vllm(mode, true)) {
                vllm.pause(VllmEngine.Place.SEND, 2);
                var id = id(vllms, own);
                var request = submit(d, prompt, id, GENERATED);
                send(vllm, tensors, id, own);
                vllm.awaitPaused();
                vllm.kill();
                var outcome = finished(request);
                assertThat(tokens(outcome)).isEqualTo(expected);
                assertThat(loaded(outcome)).isZero();
            }
            assertNothingStaged(pool);
            try (var again = vllm(mode, true)) {
                var id = id(vllms, own);
                send(again, tensors, id, own);
                for (int layer = 0; layer < LAYERS; layer++) {
                    assertThat(again.sent()).isTrue();
                }
                var outcome = finished(submit(d, prompt, id, GENERATED));
                assertThat(tokens(outcome)).isEqualTo(expected);
                assertThat(loaded(outcome)).isGreaterThanOrEqualTo(prompt.length - 1);
            }
            assertNothingHeld(d);
            assertNothingStaged(pool);
        }
    }

    /// It was told of a tensor that is put, and is killed before it answers; the next one is
    /// served.
    @ParameterizedTest
    @ValueSource(strings = {"PUT", "PUT_ASYNC"})
    void aDecoderThatIsKilledLeavesNothingAndMayComeBack(String mode) throws IOException {
        int[] prompt = prompt(1, TOKENS);
        try (var p = engine(KvRole.PRODUCER, own, mode, HostServices.NONE)) {
            try (var vllm = vllm(mode, false)) {
                vllm.pause(VllmEngine.Place.RECEIVE, 2);
                var request = submit(p, prompt, id(own, vllms), 1);
                vllm.awaitPaused();
                vllm.kill();
                finished(request);
            }
            assertNothingHeld(p);
            try (var again = vllm(mode, false)) {
                var limit = Deadline.in(SOON);
                String id;
                do { // the prefiller leaves it alone for a while
                    assertThat(limit.passed()).as("nothing is put after the restart").isFalse();
                    id = id(own, vllms);
                    finished(submit(p, prompt, id, 1));
                } while (!again.awaitHeld(
                        tensorId(id, LAYERS - 1), Deadline.in(Duration.ofSeconds(1))));
                assertThat(receive(again, id)).hasSize(LAYERS);
            }
            assertNothingHeld(p);
        }
    }

    /// It was told that a tensor follows, and is killed before ncclRecv; the next one is served.
    @Test
    void aDecoderThatIsKilledWhileItGetsLeavesNothingAndMayComeBack() throws IOException {
        var mode = "GET";
        int[] prompt = prompt(1, TOKENS);
        try (var p = engine(KvRole.PRODUCER, own, mode, HostServices.NONE)) {
            try (var vllm = vllm(mode, false)) {
                vllm.pause(VllmEngine.Place.RECEIVE, 2);
                var id = id(own, vllms);
                finished(submit(p, prompt, id, 1));
                for (int layer = 0; layer < 2; layer++) {
                    vllm.receive(tensorId(id, layer), "127.0.0.1:" + own);
                }
                assertThat(vllm.received()).isPresent();
                vllm.awaitPaused();
                vllm.kill();
            }
            assertNothingHeld(p);
            try (var again = vllm(mode, false)) {
                var id = id(own, vllms);
                finished(submit(p, prompt, id, 1));
                assertThat(receive(again, id)).hasSize(LAYERS);
            }
            assertNothingHeld(p);
        }
    }
}
