// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.encoder;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.connector.GuardedEcScheduler;
import io.kvferry.engine.connector.Transfers;
import io.kvferry.engine.telemetry.Metrics;
import io.kvferry.engine.telemetry.Telemetry;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.observe.EventSink;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.List;

/// Who gets room in the encoder cache within a step.
class ItemRoomTest {
    private static final Duration LIMIT = Duration.ofSeconds(1);

    private final Telemetry telemetry = new Telemetry(new Metrics(), EventSink.NONE);
    private final EncoderIndex index = new EncoderIndex(10, _ -> {});
    private final ItemReferences references =
            new ItemReferences(
                    index,
                    new Transfers(
                            new GuardedEcScheduler(
                                    null, ConnectorCapabilities.of(), "none", telemetry),
                            1,
                            new Transfers.Bounds(LIMIT, LIMIT, LIMIT),
                            telemetry),
                    telemetry.metrics(),
                    false);
    private final ItemRoom room = new ItemRoom(index, references);

    private static RequestItems request(String id) {
        return new RequestItems(id, List.of(), TransferParams.EMPTY, () -> true);
    }

    /// Else small items, of which some always come, would keep the room from a large one for ever.
    @Test
    void whoComesAfterALargeItemWithoutRoomGetsNoneInThisStep() {
        index.allocate("taken", 5, request("first"));
        room.beginStep();
        assertThat(room.isShortOf(request("small"), 5)).isFalse();
        assertThat(room.isShortOf(request("large"), 10)).isTrue();
        assertThat(room.isShortOf(request("small"), 5)).isTrue();
        assertThat(room.isShort()).isTrue();
        room.beginStep();
        assertThat(room.isShortOf(request("small"), 5)).isFalse();
        assertThat(references.takeBroken()).isEmpty();
    }

    @Test
    void anItemLargerThanTheCacheFailsItsRequest() {
        assertThat(room.isShortOf(request("huge"), 11)).isTrue();
        assertThat(references.takeBroken())
                .extracting(broken -> broken.failure().code())
                .containsExactly(ErrorCode.INVALID_REQUEST);
    }
}
