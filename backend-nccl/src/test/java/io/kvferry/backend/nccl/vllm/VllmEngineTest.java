// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import static io.kvferry.backend.nccl.vllm.VllmTensors.LAYERS;
import static io.kvferry.backend.nccl.vllm.VllmTensors.shape;
import static io.kvferry.backend.nccl.vllm.VllmTensors.tensor;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.gpu.NcclDouble.Knob;
import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.memory.KvLayout;

import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/// One rank and vLLM's own P2pNcclEngine, on libzmq, in another process: each byte of each tensor,
/// in both directions, in vLLM's shapes.
@Tag("interop")
class VllmEngineTest extends ExchangeCase {
    private int port;

    @BeforeEach
    void across() throws IOException {
        nccl.set(Knob.ACROSS, 1);
        port = VllmEngine.freePort();
    }

    private VllmEngine vllm(String mode, boolean prefills) throws IOException {
        return new VllmEngine(nccl, port, mode, prefills);
    }

    private PeerAddress peer() {
        return new PeerAddress("127.0.0.1", port);
    }

    private static VllmEngine.Tensor expected(TensorForm.Shape shape, int layer, int blocks) {
        var elements = tensor(shape, layer, blocks);
        var bytes = ByteBuffer.allocate(2 * elements.length).order(ByteOrder.nativeOrder());
        bytes.asShortBuffer().put(elements);
        return new VllmEngine.Tensor(
                VllmEngine.shape(shape(shape, blocks)), "bfloat16", bytes.array());
    }

    @ParameterizedTest
    @CsvSource({
        "PUT,FLASH_ATTN,LBNHC",
        "PUT,FLASHINFER,LBHNC",
        "PUT_ASYNC,FLASH_ATTN,LBHNC",
        "PUT_ASYNC,FLASHINFER,LBNHC"
    })
    void whatItPutsEndsInTheBlocks(String mode, TensorForm.Shape shape, KvLayout layout)
            throws IOException {
        start(shape, layout, new Terms());
        try (var vllm = vllm(mode, true)) {
            for (int layer = 0; layer < LAYERS; layer++) {
                vllm.send(tensorId(layer), expected(shape, layer, 6), address);
                assertThat(vllm.sent()).isTrue();
            }
            var ended = load(false, peer(), 5, new int[] {7, 2, 9}, SOON);
            assertThat(ended.outcome()).isInstanceOf(Outcome.Done.class);
            assertLoaded(layout, 2, new int[] {7, 2, 9});
            assertThat(vllm.misuse()).isEqualTo("\"\"");
        }
    }

    @ParameterizedTest
    @CsvSource({"FLASH_ATTN,LBHNC", "FLASHINFER,LBNHC"})
    void whatIsGotOfItEndsInTheBlocks(TensorForm.Shape shape, KvLayout layout) throws IOException {
        start(shape, layout, new Terms());
        try (var vllm = vllm("GET", true)) {
            for (int layer = 0; layer < LAYERS; layer++) {
                vllm.send(tensorId(layer), expected(shape, layer, 5), address);
                assertThat(vllm.sent()).isTrue();
            }
            for (int i = 0; i < 2; i++) { // it keeps them
                var ended = load(true, peer(), 5, new int[] {7, 2 + i, 9}, SOON);
                assertThat(ended.outcome()).isInstanceOf(Outcome.Done.class);
                assertLoaded(layout, 2, new int[] {7, 2 + i, 9});
            }
            assertThat(vllm.misuse()).isEqualTo("\"\"");
        }
    }

    @ParameterizedTest
    @CsvSource({"PUT,FLASH_ATTN,LBHNC", "PUT_ASYNC,FLASHINFER,LBNHC"})
    void itReceivesWhatIsPut(String mode, TensorForm.Shape shape, KvLayout layout)
            throws IOException {
        start(shape, layout, new Terms());
        int[] ids = {7, 2, 9};
        fill(layout, ids);
        try (var vllm = vllm(mode, false)) {
            var ended = new Ended();
            var sending =
                    exchange().put(ID, peer(), ids, Deadline.in(SOON), ended.outcome::complete);
            sending.available(LAYERS);
            sending.commit();
            for (int layer = 0; layer < LAYERS; layer++) {
                vllm.receive(tensorId(layer), address);
                assertThat(vllm.received()).contains(expected(shape, layer, 3));
            }
            assertThat(ended.outcome()).isInstanceOf(Outcome.Done.class);
            assertThat(vllm.misuse()).isEqualTo("\"\"");
        }
    }

    @ParameterizedTest
    @CsvSource({"FLASH_ATTN,LBNHC", "FLASHINFER,LBHNC"})
    void itGetsWhatIsOffered(TensorForm.Shape shape, KvLayout layout) throws IOException {
        start(shape, layout, new Terms());
        int[] ids = {7, 2, 9};
        fill(layout, ids);
        try (var vllm = vllm("GET", false)) {
            var ended = new Ended();
            exchange().offer(ID, ids, ended.outcome::complete);
            for (int layer = 0; layer < LAYERS; layer++) {
                vllm.receive(tensorId(layer), address);
                assertThat(vllm.received()).contains(expected(shape, layer, 3));
            }
            assertThat(ended.outcome()).isInstanceOf(Outcome.Done.class);
            vllm.receive(tensorId(0), address);
            assertThat(vllm.received()).as("got before").isEmpty();
            assertThat(vllm.misuse()).isEqualTo("\"\"");
        }
    }
}
