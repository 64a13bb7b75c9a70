// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import static io.kvferry.backend.nccl.vllm.VllmTensors.BLOCKS;
import static io.kvferry.backend.nccl.vllm.VllmTensors.DIM;
import static io.kvferry.backend.nccl.vllm.VllmTensors.HEADS;
import static io.kvferry.backend.nccl.vllm.VllmTensors.LAYERS;
import static io.kvferry.backend.nccl.vllm.VllmTensors.TOKENS;
import static io.kvferry.backend.nccl.vllm.VllmTensors.shape;
import static io.kvferry.backend.nccl.vllm.VllmTensors.tensor;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.gpu.NcclDouble;
import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.backend.nccl.wire.VllmMessage;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.memory.KvLayout;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;

/// What a prefiller puts to vLLM's decoder.
class PuttingTest extends ExchangeCase {
    private Ended put(Listener vllm, int... blocks) {
        return put(new Ended(), vllm, blocks);
    }

    private Ended put(Ended ended, Listener vllm, int... blocks) {
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

    /// A peer that has lost its end of the link refuses everything. A peer that refuses only some
    /// tensors continues with the others, and would treat the end of the link as the end of this
    /// engine.
    @Test
    void refusedPutsDoNotEndTheLinkOfAnother() throws Exception {
        start();
        var vllm = new Listener();
        var ended = new Ended();
        var deadline = Deadline.in(SOON);
        var whole =
                exchange().put(ID, vllm.address, new int[] {1}, deadline, ended.outcome::complete);
        whole.available(1);
        take(vllm, vllm.next());
        for (int i = 0; i <= PeerLink.MOST_REFUSALS; i++) {
            var refused = put(vllm, 2);
            vllm.next().asker().answer(VllmMessage.PUT_NO_MEMORY);
            refused.assertFailed(ErrorCode.NO_MEMORY);
        }
        whole.commit();
        for (int layer = 1; layer < LAYERS; layer++) {
            var asked = vllm.next();
            assertThat(vllm.links).hasValue(1);
            take(vllm, asked);
        }
        assertThat(ended.outcome()).isInstanceOf(Outcome.Done.class);
    }

    /// vLLM's engine says "1" once more where it runs out of memory after it has received. Taken
    /// for the answer to the next PUT, the tensor of the one after that would go where this one
    /// belongs.
    @Test
    void anAnswerThatNobodyAskedForEndsTheLink() throws Exception {
        start();
        var vllm = new Listener();
        var ended = put(vllm, 1);
        var asked = vllm.next();
        for (int layer = 0; layer < LAYERS; layer++) {
            take(vllm, asked);
            asked = layer + 1 < LAYERS ? vllm.next() : asked;
        }
        assertThat(ended.outcome()).isInstanceOf(Outcome.Done.class);
        asked.asker().answer(VllmMessage.PUT_NO_MEMORY);
        var limit = Deadline.in(SOON);
        while (nccl.count(NcclDouble.Count.LIVE_COMMS) > 1) { // that of the decoder
            assertThat(limit.passed()).as("the link goes on").isFalse();
            LockSupport.parkNanos(1_000_000);
        }
    }

    /// As vLLM's engine takes a tensor of one block.
    private static void take(Listener vllm, Listener.Asked put) {
        var lane = vllm.lane();
        var _ = lane.buffer(1024);
        put.asker().answer(VllmMessage.PUT_GO);
        lane.receive(2L * TOKENS * HEADS * DIM * 2);
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
            take(vllm, vllm.next());
        }
        assertThat(sending.awaitSent(LAYERS, Deadline.in(SOON))).isTrue();
        sending.abort();
        ended.assertFailed(ErrorCode.CANCELLED);
        assertThat(vllm.asked).isEmpty();
    }

    /// The thread that sends has failed and ends; it would start no other for a put that comes now.
    @Test
    void aPutThatIsAddedWhileTheOthersFailEndsToo() throws Exception {
        start();
        var vllm = new Listener();
        var first = new Ended();
        var added = new Ended();
        int noSuchBlock = BLOCKS;
        var sending =
                exchange()
                        .put(
                                ID,
                                vllm.address,
                                new int[] {noSuchBlock},
                                Deadline.in(SOON),
                                outcome -> {
                                    var _ = put(added, vllm, 1);
                                    first.outcome.complete(outcome);
                                });
        sending.available(LAYERS);
        assertThat(first.outcome()).isInstanceOf(Outcome.Failed.class);
        assertThat(added.outcome()).isInstanceOf(Outcome.Failed.class);
    }

    /// It does not wait for the next one, which would bring a thread.
    @Test
    void aPutForWhichThereIsNoThreadEndsAtOnce() {
        start();
        var own =
                new VllmParts(
                        Objects.requireNonNull(ownLanes),
                        Objects.requireNonNull(form),
                        ownChannel,
                        address,
                        new VllmParts.Limits(SHORT, SHORT, SHORT));
        var none = new OutOfMemoryError("no thread, says the test");
        var queue =
                new PutQueue(
                        own,
                        new PeerAddress("127.0.0.1", 9),
                        _ -> {
                            throw none;
                        });
        var ended = new CompletableFuture<Outcome>();
        var _ = queue.put(ID, new int[] {1}, Deadline.in(SOON), ended::complete);
        assertThat(ended).isCompletedWithValue(new Outcome.Failed(Failure.of(none)));
        queue.close();
    }
}
