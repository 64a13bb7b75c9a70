// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.util.ArrayList;

class StopStepsTest {
    @Test
    void oneThatThrowsKeepsNoOtherFromRunning() {
        var ran = new ArrayList<Integer>();
        new StopSteps("engine")
                .run("first", () -> ran.add(1))
                .run(
                        "second",
                        () -> {
                            throw new IllegalStateException("thrown by the test");
                        })
                .run(
                        "third",
                        () -> {
                            throw new OutOfMemoryError("thrown by the test");
                        })
                .run("fourth", () -> ran.add(4));
        assertThat(ran).containsExactly(1, 4);
    }
}
