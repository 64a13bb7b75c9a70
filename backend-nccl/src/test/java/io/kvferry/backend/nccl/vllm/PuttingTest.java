// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import static io.kvferry.backend.nccl.vllm.VllmTensors.DIM;
import static io.kvferry.backend.nccl.vllm.VllmTensors.HEADS;
import static io.kvferry.backend.nccl.vllm.VllmTensors.LAYERS;
import static io.kvferry.backend.nccl.vllm.VllmTensors.TOKENS;
import static io.kvferry.backend.nccl.vllm.VllmTensors.shape;
import static io.kvferry.backend.nccl.vllm.VllmTensors.tensor;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.wire.VllmMessage;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.memory.KvLayout;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.time.Duration;

/// What a prefiller puts to vLLM's decoder.
class PuttingTest extends ExchangeCase {
    private Ended put(Listener vllm, int... blocks) {
        var ended = new Ended();
        var sending =
                exchange()
                        .put(ID, vllm.address, blocks, Deadline.in(SOON), ended.outcome::complete);
        sending.available(LAYERS);
        sending.commit();
        return ended;
    }

    @ParameterizedTest
    @CsvSource({"FLASH_ATTN,LBHNC", "FLASHINFER,LBNHC"})
    void putsWhatVllmExpects(TensorForm.Shape shape, KvLayout layout) throws Exception {
        start(shape, layout, new Terms());
        int[] ids = {7, 2, 9};
        fill(layout, ids);
        var vllm = new Listener();
        var ended = put(vllm, ids);
        for (int layer = 0; layer < LAYERS; layer++) {
            var asked = vllm.next();
            var announced = (VllmMessage.Put) asked.message();
            assertThat(announced.tensorId()).isEqualTo(tensorId(layer));
            assertThat(announced.shape()).isEqualTo(shape(shape, 3));
            assertThat(announced.dtype()).isEqualTo("bfloat16");
            var expected = tensor(shape, layer, 3);
            var lane = vllm.lane();
            var buffer = lane.buffer(expected.length * 2L);
            asked.asker().answer(VllmMessage.PUT_GO);
            lane.receive(expected.length * 2L);
            assertThat(
                            buffer.asSlice(0, expected.length * 2L)
                                    .toArray(ValueLayout.JAVA_SHORT_UNALIGNED))
                    .isEqualTo(expected);
        }
        assertThat(ended.outcome()).isInstanceOf(Outcome.Done.class);
    }

    @ParameterizedTest
    @CsvSource({"1,NO_MEMORY", "xyz,PROTOCOL"})
    void anAnswerThatIsNoGoEndsThePut(String answer, ErrorCode code) throws Exception {
        start();
        var vllm = new Listener();
        var ended = put(vllm, 1, 2);
        vllm.next().asker().answer(answer.getBytes(StandardCharsets.US_ASCII));
        ended.assertFailed(code);
        assertThat(vllm.asked).isEmpty();
    }

    @Test
    void aDecoderThatDoesNotAnswerEndsThePutInTime() throws Exception {
        var terms = new Terms();
        terms.answer = Duration.ofMillis(300);
        start(terms);
        var ended = put(new Listener(), 1, 2);
        ended.assertFailed(ErrorCode.TIMEOUT);
    }

    @Test
    void aDecoderThatIsLostEndsThePutAtOnce() throws Exception {
        start();
        var vllm = new Listener();
        var ended = put(vllm, 1, 2);
        vllm.next().asker().answer(VllmMessage.PUT_GO); // and never receives
        fakeChannel.close();
        ended.assertFailed(ErrorCode.PEER_LOST);
    }

    @Test
    void aPutThatIsGivenUpEndsAtOnceAndItsLastLayerIsNeverSent() throws Exception {
        start();
        var vllm = new Listener();
        var ended = new Ended();
        var sending =
                exchange()
                        .put(
                                ID,
                                vllm.address,
                                new int[] {1},
                                Deadline.in(SOON),
                                ended.outcome::complete);
        sending.available(LAYERS);
        for (int layer = 0; layer < LAYERS - 1; layer++) {
            var asked = vllm.next();
            var lane = vllm.lane();
            var _ = lane.buffer(1024);
            asked.asker().answer(VllmMessage.PUT_GO);
            lane.receive(2L * TOKENS * HEADS * DIM * 2);
        }
        assertThat(sending.awaitSent(LAYERS, Deadline.in(SOON))).isTrue();
        sending.abort();
        ended.assertFailed(ErrorCode.CANCELLED);
        assertThat(vllm.asked).isEmpty();
    }
}
