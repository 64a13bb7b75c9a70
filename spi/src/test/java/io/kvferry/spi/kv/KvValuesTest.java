// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.List;

class KvValuesTest {
    @Test
    void transferIdsTellTheirTransferApart() {
        var id = TransferId.load("r", 1);
        assertThat(id).isEqualTo(TransferId.load("r", 1)).isNotEqualTo(TransferId.save("r", 1));
        assertThat(id.forChild("a")).isNotEqualTo(id).isNotEqualTo(id.forChild("b"));
        assertThat(id.withAttempt(2)).isNotEqualTo(id);
        assertThat(TransferId.save("r", 1, 1))
                .isNotEqualTo(TransferId.save("r", 1, 2))
                .hasToString("SAVE:r/1.1");
    }

    @Test
    void lookupsCheckThemselves() {
        assertThatThrownBy(() ->
                        LookupResult.hit(
                                0, LookupResult.LoadMode.ASYNC, "s", LookupResult.Tier.HOST))
                .isInstanceOf(IllegalArgumentException.class);
        assertThatThrownBy(() -> new LookupResult.Hit(4, LookupResult.LoadMode.SYNC, List.of()))
                .isInstanceOf(IllegalArgumentException.class);
        assertThatThrownBy(() -> new LookupResult.Pending(Duration.ofMillis(-1)))
                .isInstanceOf(IllegalArgumentException.class);
        assertThatThrownBy(() ->
                        new LoadAssignment(
                                TransferId.load("r", 0), 8, 4, LookupResult.LoadMode.SYNC))
                .isInstanceOf(IllegalArgumentException.class);
        assertThat(LoadAssignment.none(TransferId.load("r", 0)).isEmpty()).isTrue();
    }
}
