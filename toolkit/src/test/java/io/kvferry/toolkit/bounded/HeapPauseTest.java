// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.junit.jupiter.api.Test;

class HeapPauseTest {
    private final OutOfMemoryError lack = new OutOfMemoryError("for a test");

    @Test
    void letsEveryAttemptButTheLastBeFollowedByAnother() {
        int attempt = 1;
        while (!HeapPause.isLast(attempt)) {
            attempt++;
        }
        assertThat(attempt).isEqualTo(HeapPause.MOST_ATTEMPTS);
        HeapPause.after(1, lack);
        HeapPause.after(HeapPause.MOST_ATTEMPTS - 1, lack);
    }

    @Test
    void throwsWhatTheLastAttemptThrew() {
        assertThatThrownBy(() -> HeapPause.after(HeapPause.MOST_ATTEMPTS, lack)).isSameAs(lack);
    }
}
