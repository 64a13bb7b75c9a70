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

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/// GET: what a decoder gets from vLLM's prefiller, and what a prefiller offers to its decoder.
class GettingTest extends ExchangeCase {
    @Test
    void getsWhatVllmHas() throws Exception {
        start();
        var vllm = new Listener();
        var ended = load(true, vllm.address, 5, new int[] {7, 2, 9}, SOON);
        for (int layer = 0; layer < LAYERS; layer++) {
            var asked = vllm.next();
            assertThat(((VllmMessage.Get) asked.message()).tensorId()).isEqualTo(tensorId(layer));
            var tensor = tensor(TensorForm.Shape.FLASH_ATTN, layer, 5);
            var lane = vllm.lane();
            var buffer = lane.buffer(tensor.length * 2L);
            MemorySegment.copy(
                    tensor, 0, buffer, ValueLayout.JAVA_SHORT_UNALIGNED, 0, tensor.length);
            asked.asker()
                    .answer(
                            new VllmMessage.Found(shape(TensorForm.Shape.FLASH_ATTN, 5), "bfloat16")
                                    .encode());
            lane.send(tensor.length * 2L);
        }
        assertThat(ended.outcome()).isInstanceOf(Outcome.Done.class);
        assertLoaded(KvLayout.LBNHC, 2, new int[] {7, 2, 9});
    }

    @Test
    void aMissOrATensorOfAnotherTypeFailsTheGet() throws Exception {
        start();
        var vllm = new Listener();
        var missed = load(true, vllm.address, 5, new int[] {1}, SOON);
        vllm.next().asker().answer(new VllmMessage.Missing().encode());
        missed.assertFailed(ErrorCode.NOT_FOUND);
        var wrong = load(true, vllm.address, 5, new int[] {1}, SOON);
        vllm.next()
                .asker()
                .answer(
                        new VllmMessage.Found(shape(TensorForm.Shape.FLASH_ATTN, 5), "float16")
                                .encode());
        wrong.assertFailed(ErrorCode.INCOMPATIBLE);
        assertUntouched();
    }

    /// A decoder may hear of the end of a prefill before the engine's next step offers its blocks.
    @Test
    void aGetThatComesBeforeItsOfferWaitsForIt() throws Exception {
        start();
        var vllm = new Caller(FAKE);
        int[] ids = {1};
        fill(KvLayout.LBNHC, ids);
        vllm.socket.send(new VllmMessage.Get(tensorId(0)).encode());
        var ended = new Ended();
        exchange().offer(ID, ids, ended.outcome::complete);
        assertThat(VllmMessage.decode(vllm.socket.receive(Deadline.in(SOON))))
                .isInstanceOf(VllmMessage.Found.class);
        var _ = vllm.lane.buffer(1024);
        vllm.lane.receive(2L * TOKENS * HEADS * DIM * 2);
        assertThat(ended.outcome).isNotDone();
        exchange().withdraw(ID);
        ended.assertFailed(ErrorCode.CANCELLED);
    }

    @Test
    void offersWhatVllmGetsUntilItHasEachLayer() throws Exception {
        start();
        int[] ids = {7, 2, 9};
        fill(KvLayout.LBNHC, ids);
        var vllm = new Caller(FAKE);
        var ended = new Ended();
        exchange().offer(ID, ids, ended.outcome::complete);
        for (int layer = 0; layer < LAYERS; layer++) {
            var expected = tensor(TensorForm.Shape.FLASH_ATTN, layer, 3);
            var buffer = vllm.lane.buffer(expected.length * 2L);
            var found =
                    (VllmMessage.Found)
                            VllmMessage.decode(vllm.ask(new VllmMessage.Get(tensorId(layer))));
            assertThat(found.shape()).isEqualTo(shape(TensorForm.Shape.FLASH_ATTN, 3));
            vllm.lane.receive(expected.length * 2L);
            assertThat(
                            buffer.asSlice(0, expected.length * 2L)
                                    .toArray(ValueLayout.JAVA_SHORT_UNALIGNED))
                    .isEqualTo(expected);
        }
        assertThat(ended.outcome()).isInstanceOf(Outcome.Done.class);
        assertThat(VllmMessage.decode(vllm.ask(new VllmMessage.Get(tensorId(0)))))
                .isInstanceOf(VllmMessage.Missing.class);
    }
}
