// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;

import org.junit.jupiter.api.Test;

import java.util.ArrayList;

class BlockUseTest {
    @Test
    void itsEndIsToldWhenTheLastOfSeveralCopiesIsOver() {
        var told = new ArrayList<Outcome>();
        var use = new BlockUse(told::add);
        boolean copied =
                use.copy(() -> {
                    assertThat(use.copy(() -> {})).isTrue(); // one that began later and ends first
                    use.cancel();
                    assertThat(told).as("while blocks are read").isEmpty();
                    assertThat(use.copy(() -> {})).as("a new one").isFalse();
                });
        assertThat(copied).isTrue();
        assertThat(told).hasSize(1).first().isInstanceOf(Outcome.Failed.class);
    }
}
