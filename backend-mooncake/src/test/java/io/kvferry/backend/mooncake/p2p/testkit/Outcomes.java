// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.testkit;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.kv.Completion;

/// How transfers have to end.
public final class Outcomes {
    private Outcomes() {}

    public static void assertFailed(Completion.Result result, ErrorCode code, String text) {
        assertThat(result)
                .isInstanceOfSatisfying(
                        Completion.Failed.class,
                        failed -> {
                            assertThat(failed.failure().code())
                                    .as(failed.failure().message())
                                    .isEqualTo(code);
                            assertThat(failed.failure().message()).contains(text);
                        });
    }
}
