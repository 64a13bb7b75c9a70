// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.transfer;

import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.junit.jupiter.api.Test;

class PeerIdTest {
    @Test
    void anAgentWithoutANameIsNoPeer() {
        for (var name : new String[] {"", " "}) {
            assertThatThrownBy(() -> new PeerId(name, 1))
                    .isInstanceOf(IllegalArgumentException.class);
        }
    }
}
