// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.observe.Distribution;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;

class CodecTest {
    private static final BlockHash HASH = new BlockHash(1, -2, 3, Long.MIN_VALUE);

    private static StepReport full() {
        var failed =
                new TransferResult.Failed(
                        new Failure(ErrorCode.CORRUPT, "block 3"),
                        List.of(
                                new TransferResult.FailedBlocks(0, new int[] {3, 9}),
                                new TransferResult.FailedBlocks(1, new int[0])));
        return new StepReport(
                2,
                77,
                List.of(
                        new Completion(
                                TransferId.load("r", 1), 2, new TransferResult.Completed(99)),
                        new Completion(TransferId.save("ü", 0, 4).forChild("M/disk"), 2, failed),
                        new Completion(TransferId.load("x", 0), 2, new TransferResult.Revoked())),
                new Payload(3, new byte[] {1, 2, 3}),
                new Stats(
                        Map.of("a_bytes", 5L),
                        Map.of("g_blocks", -3L),
                        Map.of("b_nanos", Distribution.of(8).merge(Distribution.of(1000)))),
                List.of(
                        new CacheEvent.Stored(
                                "s", LookupResult.Tier.DISK, 1, Optional.of(HASH), List.of(HASH)),
                        new CacheEvent.Stored("s", LookupResult.Tier.HOST, List.of()),
                        new CacheEvent.Removed("s", LookupResult.Tier.HOST, List.of(HASH, HASH)),
                        new CacheEvent.ItemsStored(
                                "e", LookupResult.Tier.OTHER, List.of("../a", "")),
                        new CacheEvent.ItemsRemoved("e", LookupResult.Tier.PEER, List.of("b")),
                        new CacheEvent.Cleared("s")));
    }

    private static byte[] bytes(StepReport report) {
        var out = new WireWriter();
        report.write(out);
        return out.toByteArray();
    }

    @Test
    void reportsSurviveTheWire() {
        var in = WireReader.of(bytes(full()));
        var read = StepReport.read(in);
        in.end();
        assertThat(read).usingRecursiveComparison().isEqualTo(full());
        assertThat(read.isEmpty()).isFalse();
        var empty = WireReader.of(bytes(StepReport.empty(1, 5)));
        assertThat(StepReport.read(empty)).isEqualTo(StepReport.empty(1, 5));
    }

    @Test
    void cutAndDamagedReportsAreRefusedWithACode() {
        var good = bytes(full());
        for (int cut = 0; cut < good.length; cut++) {
            int length = cut;
            assertThatThrownBy(() -> StepReport.read(WireReader.of(Arrays.copyOf(good, length))))
                    .as("cut to " + cut)
                    .isInstanceOf(KvFerryException.class);
        }
        for (int bit = 0; bit < good.length * 8; bit++) {
            var damaged = good.clone();
            damaged[bit / 8] ^= (byte) (1 << bit % 8);
            try {
                var in = WireReader.of(damaged);
                StepReport.read(in);
                in.end();
            } catch (KvFerryException e) {
                assertThat(e.code()).isEqualTo(ErrorCode.PROTOCOL);
            }
        }
    }

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
