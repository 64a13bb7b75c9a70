// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.process;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.RequestView.ItemKey;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.observe.Distribution;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import org.junit.jupiter.api.Test;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;

class ReportCodecTest {
    private static final BlockHash HASH = new BlockHash(1, -2, 3, Long.MIN_VALUE);

    private static StepReport full() {
        var failed =
                new Completion.Failed(
                        new Failure(ErrorCode.CORRUPT, "block 3"),
                        List.of(
                                new Completion.FailedBlocks(0, new int[] {3, 9}),
                                new Completion.FailedBlocks(1, new int[0])));
        return new StepReport(
                2,
                77,
                List.of(
                        new Completion(TransferId.load("r", 1), 2, new Completion.Completed(99)),
                        new Completion(
                                new TransferId("ü", 0, TransferId.Direction.SAVE, 4, "")
                                        .forChild("M/disk"),
                                2,
                                failed),
                        new Completion(TransferId.load("x", 0), 2, new Completion.Revoked())),
                new Payload(3, new byte[] {1, 2, 3}),
                new Stats(
                        Map.of("a_bytes", 5L),
                        Map.of("g_blocks", -3L),
                        Map.of("b_nanos", Distribution.of(8).merge(Distribution.of(1000)))),
                List.of(
                        new CacheEvent.Stored(
                                "s", LookupResult.Tier.DISK, 1, Optional.of(HASH), List.of(HASH)),
                        new CacheEvent.Stored("s", LookupResult.Tier.HOST, List.of()),
                        new CacheEvent.Stored(
                                "s",
                                LookupResult.Tier.DEVICE,
                                0,
                                Optional.empty(),
                                List.of(HASH, HASH),
                                2,
                                new int[] {1, 2, 3, -4}),
                        new CacheEvent.Stored(
                                "s",
                                LookupResult.Tier.DEVICE,
                                0,
                                Optional.empty(),
                                List.of(HASH, HASH),
                                1,
                                new int[] {1, 2},
                                List.of(List.of(new ItemKey("bild-ä", -3)), List.of()),
                                "salt"),
                        new CacheEvent.Removed("s", LookupResult.Tier.HOST, List.of(HASH, HASH)),
                        new CacheEvent.ItemsStored(
                                "e", LookupResult.Tier.OTHER, List.of("../a", "")),
                        new CacheEvent.ItemsRemoved("e", LookupResult.Tier.PEER, List.of("b")),
                        new CacheEvent.Cleared("s")));
    }

    private static byte[] bytes(StepReport report) {
        var out = new WireWriter();
        ReportCodec.write(out, report);
        return out.toByteArray();
    }

    @Test
    void reportsSurviveTheWire() {
        var in = new WireReader(bytes(full()));
        var read = ReportCodec.read(in);
        in.end();
        assertThat(read).usingRecursiveComparison().isEqualTo(full());
        var nothing = new StepReport(1, 5, List.of(), Payload.EMPTY, Stats.EMPTY, List.of());
        assertThat(ReportCodec.read(new WireReader(bytes(nothing)))).isEqualTo(nothing);
    }

    @Test
    void cutAndDamagedReportsAreRefusedWithACode() {
        var good = bytes(full());
        for (int cut = 0; cut < good.length; cut++) {
            int length = cut;
            assertThatThrownBy(() -> ReportCodec.read(new WireReader(Arrays.copyOf(good, length))))
                    .as("cut to " + cut)
                    .isInstanceOf(KvFerryException.class);
        }
        for (int bit = 0; bit < good.length * 8; bit++) {
            var damaged = good.clone();
            damaged[bit / 8] ^= (byte) (1 << bit % 8);
            try {
                var in = new WireReader(damaged);
                ReportCodec.read(in);
                in.end();
            } catch (KvFerryException e) {
                assertThat(e.code()).isEqualTo(ErrorCode.PROTOCOL);
            }
        }
    }
}
