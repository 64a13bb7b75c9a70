// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.process;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.model.TokenLogprobs;
import io.kvferry.engine.worker.PlannedItem;
import io.kvferry.engine.worker.RankResult;
import io.kvferry.engine.worker.StepPlan;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;
import io.kvferry.toolkit.recovery.ConnectorChange;

import org.junit.jupiter.api.Test;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/// Plans and results as a worker process and its engine read them from each other's frames, whose
/// writers are used again for every step.
class StepFramesTest {
    private static final String LONG = "l".repeat(70_000);
    private static final SamplingParams SAMPLING =
            new SamplingParams(
                    5, 0.5, 0.9, -7, List.of("Grüße", "\u20ac\ud83d\ude00"), List.of(3), true);

    /// A request that computes `count` tokens from `start` on; token and block numbers tell where
    /// they stand.
    private record Planned(String requestId, int start, int count, List<EncoderInput> inputs)
            implements PlannedItem, BlockTable {
        @Override
        public int tokenAt(int position) {
            return requestId.length() * 1_000_000 + position;
        }

        @Override
        public int changedFrom() {
            return start;
        }

        @Override
        public BlockTable blocks() {
            return this;
        }

        @Override
        public boolean sampled() {
            return true;
        }

        @Override
        public SamplingParams sampling() {
            return SAMPLING;
        }

        @Override
        public int promptTokens() {
            return 9;
        }

        @Override
        public int groups() {
            return 2;
        }

        @Override
        public int count(int group) {
            return (start + count + 3) / 4;
        }

        @Override
        public int block(int group, int position) {
            return group * 1000 + position;
        }
    }

    private static StepPlan plan(long number, List<PlannedItem> items, List<String> ended) {
        return new StepPlan(
                number,
                Deadline.in(Duration.ofSeconds(30)),
                new Payload(2, new byte[] {(byte) number}),
                List.of(TransferId.load("ü", 1).forChild("M/\u20ac")),
                Payload.EMPTY,
                List.of(),
                List.of("", "größer"),
                List.of(),
                List.of(),
                items,
                ended,
                ConnectorChange.NONE,
                ConnectorChange.NONE);
    }

    private static void assertSame(StepPlan read, StepPlan sent) {
        assertThat(read.number()).isEqualTo(sent.number());
        assertThat(read.kvPlan()).isEqualTo(sent.kvPlan());
        assertThat(read.kvRevoked()).isEqualTo(sent.kvRevoked());
        assertThat(read.freedItems()).isEqualTo(sent.freedItems());
        assertThat(read.ended()).isEqualTo(sent.ended());
        assertThat(read.items()).hasSameSizeAs(sent.items());
        for (int i = 0; i < sent.items().size(); i++) {
            assertSame(read.items().get(i), sent.items().get(i));
        }
    }

    private static void assertSame(PlannedItem read, PlannedItem sent) {
        assertThat(read.requestId()).isEqualTo(sent.requestId());
        assertThat(read.start()).isEqualTo(sent.start());
        assertThat(read.count()).isEqualTo(sent.count());
        assertThat(read.sampling()).isEqualTo(sent.sampling());
        assertThat(read.promptTokens()).isEqualTo(sent.promptTokens());
        for (int at = 0; at < sent.start() + sent.count(); at++) {
            assertThat(read.tokenAt(at)).isEqualTo(sent.tokenAt(at));
        }
        for (int group = 0; group < sent.blocks().groups(); group++) {
            assertThat(read.blocks().count(group)).isEqualTo(sent.blocks().count(group));
            for (int at = 0; at < sent.blocks().count(group); at++) {
                assertThat(read.blocks().block(group, at))
                        .isEqualTo(sent.blocks().block(group, at));
            }
        }
        assertThat(read.inputs()).hasSameSizeAs(sent.inputs());
        for (int i = 0; i < sent.inputs().size(); i++) {
            assertThat(read.inputs().get(i).hash()).isEqualTo(sent.inputs().get(i).hash());
        }
    }

    @Test
    void ranksReadThePlanThatWasSentWhateverItsIdsAndHoweverLongItWas() throws IOException {
        var image = List.of(new EncoderInput("bild-ä", "image", 1, 2, new byte[0]));
        var steps =
                List.of(
                        plan(
                                1,
                                List.of(
                                        new Planned("r1", 0, 9, image),
                                        new Planned("r2:\u20ac\ud83d\ude00", 0, 5, List.of()),
                                        new Planned(LONG, 0, 3000, List.of())),
                                List.of()),
                        plan(2, List.of(new Planned("r1", 9, 1, List.of())), List.of(LONG)),
                        plan(
                                3,
                                List.of(
                                        new Planned("r2:\u20ac\ud83d\ude00", 5, 4, image),
                                        new Planned("r1", 10, 1, List.of()),
                                        new Planned("", 0, 1, List.of())),
                                List.of()),
                        plan(4, List.of(), List.of()));
        var encoder = new StepEncoder();
        var ranks = List.of(new ByteArrayOutputStream(), new ByteArrayOutputStream());
        for (var step : steps) {
            var frame = encoder.encode(step);
            for (var rank : ranks) {
                new WorkerPipe(InputStream.nullInputStream(), rank).send(WorkerPipe.STEP, frame);
            }
        }
        for (var rank : ranks) {
            var pipe =
                    new WorkerPipe(
                            new ByteArrayInputStream(rank.toByteArray()),
                            OutputStream.nullOutputStream());
            var decoder = new StepDecoder();
            for (var step : steps) {
                assertSame(decoder.decode(pipe.expect(WorkerPipe.STEP)), step);
            }
        }
    }

    /// Both results are used again, for more and for fewer requests than before.
    @Test
    void resultsOfAStepHoldNothingOfTheStepBefore() {
        var out = new WireWriter();
        var sent = new RankResult();
        var read = new RankResult();
        for (int size : List.of(3, 40, 1, 0, 5)) {
            sent.reset(size, 2, 100 + size);
            for (int i = 0; i < size; i++) {
                sent.token(i, 7 * i + size);
                if (i % 4 == 1) {
                    sent.fail(i, new Failure(ErrorCode.CORRUPT, "Größe " + i));
                } else if (i % 4 == 2) {
                    sent.skip(i);
                } else if (i % 4 == 3) {
                    sent.logprobs(
                            i, new TokenLogprobs(-i, new int[] {i, 9}, new float[] {-1f, -2.5f}));
                }
            }
            if (size == 40) {
                sent.kvDefect(new Failure(ErrorCode.IO, ""));
                sent.encodeFailure("", new Failure(ErrorCode.NO_MEMORY, "\u20ac"));
            }
            ResultCodec.write(out, sent);
            ResultCodec.read(new WireReader(out.toByteArray()), read, 2, 100 + size, size);
            assertThat(state(read)).isEqualTo(state(sent));
        }
    }

    /// What is left of the step before would be taken for tokens of this one.
    @Test
    void aReplyForMoreOrFewerRequestsThanWerePlannedIsRefused() {
        var sent = new RankResult();
        var read = new RankResult();
        for (int size : List.of(0, 2, 4)) {
            sent.reset(size, 1, 7);
            for (int i = 0; i < size; i++) {
                sent.token(i, i);
            }
            var out = new WireWriter();
            ResultCodec.write(out, sent);
            assertThatThrownBy(() ->
                            ResultCodec.read(new WireReader(out.toByteArray()), read, 1, 7, 3))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.PROTOCOL))
                    .hasMessageContaining("for " + size + " requests of step 7");
        }
    }

    private static List<Object> state(RankResult result) {
        var all = new ArrayList<Object>();
        for (int i = 0; i < result.size(); i++) {
            all.add(result.token(i));
            all.add(result.skipped(i));
            all.add(result.failure(i));
            all.add(
                    result.logprobs(i)
                            .map(l ->
                                    List.of(
                                            l.chosen(),
                                            l.topTokens()[0],
                                            l.topTokens()[1],
                                            l.topLogprobs()[0],
                                            l.topLogprobs()[1])));
        }
        all.add(result.isClean());
        all.add(result.kvReport());
        all.add(result.kvDefect());
        all.add(result.ecDefect());
        all.add(List.copyOf(result.encodeFailures()));
        return all;
    }
}
