// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import static io.kvferry.backend.nccl.engines.P2pEngines.GENERATED;
import static io.kvferry.backend.nccl.engines.P2pEngines.TOKENS;
import static io.kvferry.backend.nccl.engines.P2pEngines.alone;
import static io.kvferry.backend.nccl.engines.P2pEngines.assertNothingHeld;
import static io.kvferry.backend.nccl.engines.P2pEngines.assertNothingStaged;
import static io.kvferry.backend.nccl.engines.P2pEngines.finished;
import static io.kvferry.backend.nccl.engines.P2pEngines.freePorts;
import static io.kvferry.backend.nccl.engines.P2pEngines.host;
import static io.kvferry.backend.nccl.engines.P2pEngines.loaded;
import static io.kvferry.backend.nccl.engines.P2pEngines.options;
import static io.kvferry.backend.nccl.engines.P2pEngines.prompt;
import static io.kvferry.backend.nccl.engines.P2pEngines.tokens;
import static io.kvferry.backend.nccl.engines.P2pEngines.tokensAlone;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.nccl.P2pNcclConnectorProvider;
import io.kvferry.backend.nccl.VllmP2p;
import io.kvferry.backend.nccl.engines.P2pEngines;
import io.kvferry.backend.nccl.gpu.NcclDouble;
import io.kvferry.backend.nccl.gpu.NcclDouble.Count;
import io.kvferry.backend.nccl.gpu.NcclDouble.Knob;
import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.backend.nccl.wire.RequestAddresses;
import io.kvferry.engine.Engine;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.toolkit.staging.BuddyStagingPool;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import java.util.Map;

/// Whole engines that hand over by protocol 0, vLLM's, over the C double of NCCL: every loaded byte
/// is verified.
class VllmHandOverTest {
    private static final long ROOM = 64 << 20;

    private final NcclDouble nccl = NcclDouble.load();

    @BeforeEach
    void reset() {
        nccl.reset();
    }

    @AfterEach
    void nothingIsLeft() {
        nccl.assertClean();
    }

    private VllmP2p provider() {
        return new VllmP2p(nccl);
    }

    private static Map<String, Object> vllm(String mode, int port, String shape) {
        return VllmP2p.options(mode, port, shape);
    }

    private static RequestHandle submit(Engine engine, int[] prompt, String id, int tokens) {
        return submit(engine, prompt, id, tokens, 0);
    }

    private static RequestHandle submit(
            Engine engine, int[] prompt, String id, int tokens, int promptIndex) {
        return engine.submit(
                GenerationRequest.of(prompt, SamplingParams.greedy(tokens))
                        .withFailurePolicy(LoadFailurePolicy.RECOMPUTE)
                        .withExternalId(id)
                        .withPromptIndex(promptIndex));
    }

    private static String id(int pPort, int dPort) {
        var host = "127.0.0.1";
        return RequestAddresses.draw(new PeerAddress(host, pPort), new PeerAddress(host, dPort))
                .transferId();
    }

    @ParameterizedTest
    @CsvSource({
        "PUT_ASYNC,1,false,flash_attn",
        "PUT_ASYNC,2,true,flashinfer",
        "PUT,1,true,flash_attn",
        "PUT,2,false,flashinfer",
        "GET,1,false,flash_attn",
        "GET,2,false,flashinfer"
    })
    void handsOverTensorByTensor(String mode, int tp, boolean decoderFirst, String shape)
            throws IOException {
        nccl.set(Knob.GROUP_POLLS, 1);
        int pPort = freePorts(tp);
        int dPort = freePorts(tp);
        try (var pool = new BuddyStagingPool(ROOM);
                var alone = alone(Map.of());
                var p =
                        P2pEngines.open(
                                KvRole.PRODUCER,
                                tp,
                                vllm(mode, pPort, shape),
                                HostServices.NONE,
                                provider());
                var d =
                        P2pEngines.open(
                                KvRole.CONSUMER,
                                tp,
                                vllm(mode, dPort, shape),
                                host(pool),
                                provider())) {
            for (int i = 0; i < 4; i++) {
                int[] prompt = prompt(i, TOKENS + i);
                var id = id(pPort, dPort);
                var early = decoderFirst ? submit(d, prompt, id, GENERATED) : null;
                finished(submit(p, prompt, id, 1));
                var outcome = finished(early != null ? early : submit(d, prompt, id, GENERATED));
                assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt));
                assertThat(loaded(outcome)).isGreaterThanOrEqualTo(prompt.length - 1);
            }
            assertThat(nccl.count(Count.IDS)).as("a communicator for each pair").isEqualTo(tp);
            assertThat(nccl.count(Count.LARGEST_GROUP)).as("one tensor at a time").isEqualTo(1);
            assertNothingHeld(p);
            assertNothingHeld(d);
            assertNothingStaged(pool);
        }
    }

    /// The request's tokens are computed by the decoder, and nothing stays.
    @Test
    void aDecoderWithoutRoomComputesThePromptItself() throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        var small = vllm("PUT_ASYNC", dPort, "flash_attn");
        small.put("mem_pool_size_gb", 0.000001);
        try (var pool = new BuddyStagingPool(ROOM);
                var alone = alone(Map.of());
                var p =
                        P2pEngines.open(
                                KvRole.PRODUCER,
                                1,
                                vllm("PUT_ASYNC", pPort, "flash_attn"),
                                HostServices.NONE,
                                provider());
                var d = P2pEngines.open(KvRole.CONSUMER, 1, small, host(pool), provider())) {
            for (int i = 0; i < 2; i++) {
                int[] prompt = prompt(i, TOKENS);
                var id = id(pPort, dPort);
                finished(submit(p, prompt, id, 1));
                var outcome = finished(submit(d, prompt, id, GENERATED));
                assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt));
                assertThat(loaded(outcome)).isZero();
            }
            assertNothingHeld(p);
            assertNothingHeld(d);
            assertNothingStaged(pool);
        }
    }

    private interface Exchanges {
        void run(Engine alone, Engine p, Engine d, String id);
    }

    private void between(String mode, Exchanges exchanges) throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        try (var pool = new BuddyStagingPool(ROOM);
                var alone = alone(Map.of());
                var p =
                        P2pEngines.open(
                                KvRole.PRODUCER,
                                1,
                                vllm(mode, pPort, "flash_attn"),
                                HostServices.NONE,
                                provider());
                var d =
                        P2pEngines.open(
                                KvRole.CONSUMER,
                                1,
                                vllm(mode, dPort, "flash_attn"),
                                host(pool),
                                provider())) {
            exchanges.run(alone, p, d, id(pPort, dPort));
            assertNothingHeld(p);
            assertNothingHeld(d);
            assertNothingStaged(pool);
        }
    }

    /// Decodes, and checks every token.
    ///
    /// @return whether the prompt was loaded; else it was computed
    private static boolean decodes(Engine alone, Engine d, int[] prompt, String id) {
        var outcome = finished(submit(d, prompt, id, GENERATED));
        assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt));
        assertThat(loaded(outcome)).isIn(0, prompt.length - 1, prompt.length);
        return loaded(outcome) > 0;
    }

    /// Engines that have no such index, or a call that is repeated with another prompt.
    @ParameterizedTest
    @ValueSource(strings = {"PUT_ASYNC", "GET"})
    void aDecoderLoadsTheFirstPromptOfACallAlone(String mode) throws IOException {
        int[] a = prompt(1, TOKENS);
        int[] b = prompt(2, TOKENS);
        between(
                mode,
                (alone, p, d, id) -> {
                    finished(submit(p, b, "cmpl-" + id + "-1", 1));
                    finished(submit(p, a, "cmpl-" + id + "-0", 1));
                    assertThat(decodes(alone, d, a, id)).isTrue();
                    assertThat(decodes(alone, d, b, id)).isFalse();
                    assertThat(decodes(alone, d, b, "cmpl-" + id + "-1")).isTrue();
                });
    }

    /// With PUT, the second prompt would come as the first once more, and cost both.
    @ParameterizedTest
    @ValueSource(strings = {"PUT_ASYNC", "GET"})
    void aPrefillerHandsOverTheFirstPromptOfACallAlone(String mode) throws IOException {
        int[] a = prompt(1, TOKENS);
        int[] b = prompt(2, TOKENS);
        between(
                mode,
                (alone, p, d, id) -> {
                    finished(submit(p, a, id, 1));
                    finished(submit(p, b, id, 1));
                    if (mode.equals("GET")) { // as vLLM's decoder, which counts them, too
                        assertThat(decodes(alone, d, b, "cmpl-" + id + "-1")).isFalse();
                    }
                    assertThat(decodes(alone, d, a, "cmpl-" + id + "-0")).isTrue();
                });
    }

    /// The prompts of a call have one id of the client's, and are counted as vLLM counts them.
    @ParameterizedTest
    @ValueSource(strings = {"PUT_ASYNC", "GET"})
    void allPromptsOfACallAreHandedOver(String mode) throws IOException {
        between(
                mode,
                (alone, p, d, id) -> {
                    for (int i = 0; i < 3; i++) {
                        finished(submit(p, prompt(i, TOKENS), id, 1, i));
                    }
                    for (int i = 2; i >= 0; i--) {
                        int[] prompt = prompt(i, TOKENS);
                        var outcome = finished(submit(d, prompt, id, GENERATED, i));
                        assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt));
                        assertThat(loaded(outcome)).isGreaterThanOrEqualTo(TOKENS - 1);
                    }
                });
    }

    /// vLLM's prefiller keeps what was got, and would give it again.
    @Test
    void aDecoderGetsNothingForAnotherPromptOfAnIdThatItKnows() throws IOException {
        int[] a = prompt(1, TOKENS);
        between(
                "GET",
                (alone, p, d, id) -> {
                    finished(submit(p, a, id, 1));
                    assertThat(decodes(alone, d, a, id)).isTrue();
                    finished(submit(p, a, id, 1));
                    assertThat(decodes(alone, d, prompt(2, TOKENS), id)).isFalse();
                    assertThat(decodes(alone, d, a, id)).isTrue();
                });
    }

    @ParameterizedTest
    @ValueSource(strings = {"auto", "host", "tcp"})
    void withoutNcclItIsRefusedAtTheStart(String plane) throws IOException {
        Assumptions.assumeFalse(Files.exists(Path.of("/dev/nvidia0")), "this machine has a GPU");
        var options = vllm("GET", freePorts(1), "flash_attn");
        options.put("data_plane", plane);
        assertRefused(options, KvRole.PRODUCER, "NCCL");
    }

    @Test
    void whatProtocolZeroCannotDoIsRefusedAtTheStart() throws IOException {
        var options = vllm("PUT", freePorts(1), "flash_attn");
        assertRefused(options, KvRole.BOTH, "kv_producer");
        assertRefused(options, KvRole.CONSUMER, "staging pool");
        var secret = Files.createTempFile("kvferry", ".secret");
        try {
            Files.writeString(secret, "0123456789abcdef0123456789abcdef0123456789abcdef");
            Files.setPosixFilePermissions(secret, PosixFilePermissions.fromString("rw-------"));
            options.put("secret_file", secret.toString());
            assertRefused(options, KvRole.PRODUCER, "secret");
        } finally {
            Files.delete(secret);
        }
        options.remove("secret_file");
        for (var form : List.of("cmpl", "cmpl-{id}-{prompts}")) {
            options.put("vllm_request_id", form);
            assertRefused(options, KvRole.PRODUCER, "vllm_request_id");
        }
    }

    private static void assertRefused(Map<String, Object> options, KvRole role, String reason) {
        var real = new P2pNcclConnectorProvider();
        assertThatThrownBy(() -> P2pEngines.open(role, 1, options, HostServices.NONE, real).close())
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.BAD_CONFIG))
                .hasMessageContaining(reason);
    }
}
