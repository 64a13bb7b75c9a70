// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.util.Arrays;

class ErrorCodeTest {
    @Test
    void numbersAreUniqueAndFindTheirCode() {
        assertThat(Arrays.stream(ErrorCode.values()).map(ErrorCode::wire)).doesNotHaveDuplicates();
        assertThat(ErrorCode.values())
                .allSatisfy(code -> assertThat(ErrorCode.ofWire(code.wire())).contains(code));
        assertThat(ErrorCode.ofWire(0x7fff_0001)).isEmpty();
    }

    @Test
    void theHighHalfIsTheCategory() {
        for (var code : ErrorCode.values()) {
            assertThat(code.wire() >>> 16).as(code.name()).isEqualTo(code.category().ordinal());
            assertThat(code.wire() & 0xffff).as(code.name()).isPositive();
        }
    }

    @Test
    void numbersNeverChange() {
        assertThat(ErrorCode.INVALID_REQUEST.wire()).isEqualTo(0x1);
        assertThat(ErrorCode.BAD_CONFIG.wire()).isEqualTo(0x1_0001);
        assertThat(ErrorCode.PEER_LOST.wire()).isEqualTo(0x2_0001);
        assertThat(ErrorCode.TIMEOUT.wire()).isEqualTo(0x3_0001);
        assertThat(ErrorCode.STORAGE_IO.wire()).isEqualTo(0x4_0001);
        assertThat(ErrorCode.BACKPRESSURE.wire()).isEqualTo(0x5_0001);
        assertThat(ErrorCode.CORRUPT.wire()).isEqualTo(0x6_0001);
        assertThat(ErrorCode.INCOMPATIBLE.wire()).isEqualTo(0x7_0001);
        assertThat(ErrorCode.INTERNAL.wire()).isEqualTo(0x8_0001);
    }

    @Test
    void failuresKeepCodeAndText() {
        var thrown = new KvFerryException(ErrorCode.NO_SPACE, "quota of 1 GiB is used up");
        assertThat(Failure.of(thrown))
                .isEqualTo(new Failure(ErrorCode.NO_SPACE, "quota of 1 GiB is used up"));
        assertThat(Failure.of(new IllegalStateException("odd")).code())
                .isEqualTo(ErrorCode.INTERNAL);
        assertThat(Failure.of(thrown).toException().code()).isEqualTo(ErrorCode.NO_SPACE);
    }
}
