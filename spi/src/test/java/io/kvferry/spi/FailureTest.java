// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

class FailureTest {
    @Test
    void keepsTheCodeOfACodedException() {
        assertThat(Failure.of(new KvFerryException(ErrorCode.PEER_LOST, "it has gone")))
                .isEqualTo(new Failure(ErrorCode.PEER_LOST, "it has gone"));
    }

    @Test
    void callsAnythingElseInternal() {
        var failure = Failure.of(new IllegalStateException("a defect"));
        assertThat(failure.code()).isEqualTo(ErrorCode.INTERNAL);
        assertThat(failure.message()).contains("IllegalStateException", "a defect");
    }

    @Test
    void tellsOfAFailureThatThereIsNoMemoryToDescribe() {
        var undescribed =
                new RuntimeException() {
                    @Override
                    public String toString() {
                        throw new OutOfMemoryError("thrown by the test");
                    }
                };
        assertThat(Failure.of(undescribed).code()).isEqualTo(ErrorCode.NO_MEMORY);
    }
}
