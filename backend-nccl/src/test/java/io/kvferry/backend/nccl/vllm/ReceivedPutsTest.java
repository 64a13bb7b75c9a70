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

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.backend.nccl.wire.VllmMessage;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.StagingPool;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;

/// What a decoder does with the tensors that vLLM's prefiller puts.
class ReceivedPutsTest extends ExchangeCase {
    @ParameterizedTest
    @CsvSource({
        "FLASH_ATTN,LBNHC,false",
        "FLASH_ATTN,LBHNC,true",
        "FLASHINFER,LBNHC,true",
        "FLASHINFER,LBHNC,false"
    })
    void tensorsThatVllmPutsEndInTheBlocks(
            TensorForm.Shape shape, KvLayout layout, boolean asksFirst) {
        start(shape, layout, new Terms());
        var early = asksFirst ? load(5, 7, 2, 9) : null;
        var vllm = new Caller(FAKE);
        for (int layer = 0; layer < LAYERS; layer++) {
            vllm.put(layer, shape, 6); // one block more than the prompt has
        }
        if (!asksFirst) {
            assertUntouched();
        }
        var ended = early != null ? early : load(5, 7, 2, 9);
        assertThat(ended.outcome()).isInstanceOf(Outcome.Done.class);
        assertLoaded(layout, 2, new int[] {7, 2, 9});
        assertThat(vllm.announce(0, shape, 6)).isEqualTo(VllmMessage.PUT_NO_MEMORY);
    }

    @Test
    void aTensorOfAnotherShapeOrTypeIsRefusedAndFailsItsRequest() {
        start();
        var vllm = new Caller(FAKE);
        long[][] wrong = {
            {5, 2, TOKENS, HEADS, DIM},
            {2, 5, TOKENS, HEADS + 1, DIM},
            {2, BLOCKS + 1, TOKENS, HEADS, DIM},
            {2, 0, TOKENS, HEADS, DIM},
            {2},
            {}
        };
        for (var each : wrong) {
            assertThat(vllm.ask(new VllmMessage.Put(tensorId(0), each, "bfloat16")))
                    .as(Arrays.toString(each))
                    .isEqualTo(VllmMessage.PUT_NO_MEMORY);
        }
        load(5, 1, 2).assertFailed(ErrorCode.INCOMPATIBLE);
        assertUntouched();
    }

    @Test
    void whatOnePeerPutsIsNotTouchedByAnother() {
        start();
        var shape = TensorForm.Shape.FLASH_ATTN;
        var vllm = new Caller(FAKE);
        vllm.put(0, shape, 5);
        var other = new Caller("127.0.0.1:10");
        assertThat(other.announce(1, shape, 5)).isEqualTo(VllmMessage.PUT_NO_MEMORY);
        assertThat(other.ask(new VllmMessage.Put(tensorId(1), new long[] {2}, "bfloat16")))
                .isEqualTo(VllmMessage.PUT_NO_MEMORY);
        for (int layer = 1; layer < LAYERS; layer++) {
            vllm.put(layer, shape, 5);
        }
        assertThat(load(5, 1, 2).outcome()).isInstanceOf(Outcome.Done.class);
        assertLoaded(KvLayout.LBNHC, 3, new int[] {1, 2});
    }

    @Test
    void aTensorOfAnotherTypeFailsTheRequestThatWaits() {
        start();
        var ended = load(5, 1, 2);
        var vllm = new Caller(FAKE);
        vllm.put(0, TensorForm.Shape.FLASH_ATTN, 5);
        var put =
                new VllmMessage.Put(tensorId(1), new long[] {2, 5, TOKENS, HEADS, DIM}, "float16");
        assertThat(vllm.ask(put)).isEqualTo(VllmMessage.PUT_NO_MEMORY);
        ended.assertFailed(ErrorCode.INCOMPATIBLE);
        assertUntouched();
    }

    @Test
    void aTensorThatIsPutTwiceFailsTheRequest() {
        start();
        var vllm = new Caller(FAKE);
        vllm.put(0, TensorForm.Shape.FLASH_ATTN, 5);
        assertThat(vllm.announce(0, TensorForm.Shape.FLASH_ATTN, 5))
                .isEqualTo(VllmMessage.PUT_NO_MEMORY);
        assertThat(vllm.announce(1, TensorForm.Shape.FLASH_ATTN, 5))
                .isEqualTo(VllmMessage.PUT_NO_MEMORY);
        load(5, 1, 2).assertFailed(ErrorCode.ALREADY_ACTIVE);
        assertUntouched();
    }

    /// vLLM waits for an answer for ever, and this rank's request for its tensors.
    @ParameterizedTest
    @ValueSource(strings = {"allocate", "segment", "pin"})
    void aTensorThatCannotBeKeptFailsItsRequestWhateverTheReason(String method) {
        var terms = new Terms();
        terms.between = real -> throwingOnce(real, method);
        start(terms);
        var ended = load(5, 1, 2);
        var vllm = new Caller(FAKE);
        if (method.equals("pin")) { // once it is there
            vllm.put(0, TensorForm.Shape.FLASH_ATTN, 5);
        } else {
            assertThat(vllm.announce(0, TensorForm.Shape.FLASH_ATTN, 5))
                    .isEqualTo(VllmMessage.PUT_NO_MEMORY);
        }
        ended.assertFailed(ErrorCode.INTERNAL);
        assertThat(vllm.announce(1, TensorForm.Shape.FLASH_ATTN, 5))
                .isEqualTo(VllmMessage.PUT_NO_MEMORY);
        assertUntouched();
    }

    private static StagingPool throwingOnce(StagingPool real, String throwing) {
        var armed = new AtomicBoolean(true);
        return (StagingPool)
                Proxy.newProxyInstance(
                        StagingPool.class.getClassLoader(),
                        new Class<?>[] {StagingPool.class},
                        (_, method, arguments) -> {
                            if (method.getName().equals(throwing) && armed.getAndSet(false)) {
                                throw new OutOfMemoryError("says the test");
                            }
                            return method.invoke(real, arguments);
                        });
    }

    @Test
    void fewerBlocksThanThePromptHasAreRefused() {
        start();
        var vllm = new Caller(FAKE);
        for (int layer = 0; layer < LAYERS; layer++) {
            vllm.put(layer, TensorForm.Shape.FLASH_ATTN, 4);
        }
        load(5, 1, 2).assertFailed(ErrorCode.INCOMPATIBLE);
        assertUntouched();
    }

    @Test
    void aTensorThatNeverComesFailsTheRequestInTime() {
        start();
        var vllm = new Caller(FAKE);
        vllm.put(0, TensorForm.Shape.FLASH_ATTN, 5);
        var ended = load(false, PeerAddress.parse(FAKE).orElseThrow(), 5, new int[] {1, 2}, SHORT);
        ended.assertFailed(ErrorCode.TIMEOUT);
        assertUntouched();
    }

    /// The peer says that a tensor follows, and sends none.
    @Test
    void aPeerThatHangsInTheMiddleFailsTheRequestInTime() {
        var terms = new Terms();
        terms.turn = SHORT;
        start(terms);
        var ended = load(5, 1, 2);
        var vllm = new Caller(FAKE);
        assertThat(vllm.announce(0, TensorForm.Shape.FLASH_ATTN, 5)).isEqualTo(VllmMessage.PUT_GO);
        ended.assertFailed(ErrorCode.TIMEOUT);
        assertThat(vllm.announce(1, TensorForm.Shape.FLASH_ATTN, 5))
                .isEqualTo(VllmMessage.PUT_NO_MEMORY);
    }

    @Test
    void whatNobodyAsksForIsBoundedInBytes() {
        long tensor = 4096; // as the pool rounds it
        var terms = new Terms();
        terms.room = 2 * tensor;
        start(terms);
        var vllm = new Caller(FAKE);
        vllm.put(0, TensorForm.Shape.FLASH_ATTN, BLOCKS);
        vllm.put(1, TensorForm.Shape.FLASH_ATTN, BLOCKS);
        assertThat(exchange().staged()).isEqualTo(2 * tensor);
        assertThat(vllm.announce(2, TensorForm.Shape.FLASH_ATTN, BLOCKS))
                .isEqualTo(VllmMessage.PUT_NO_MEMORY);
        assertThat(exchange().staged()).as("a transfer goes whole").isZero();
        load(5, 1, 2).assertFailed(ErrorCode.NO_MEMORY);
    }

    @Test
    void whatNobodyAsksForGoesAfterAWhile() {
        var terms = new Terms();
        terms.staged = Duration.ofMillis(300);
        start(terms);
        new Caller(FAKE).put(0, TensorForm.Shape.FLASH_ATTN, 5);
        var limit = Deadline.in(SOON);
        while (exchange().staged() > 0) {
            assertThat(limit.passed()).as("what nobody asks for stays").isFalse();
            LockSupport.parkNanos(1_000_000);
        }
        load(5, 1, 2).assertFailed(ErrorCode.TIMEOUT);
    }
}
