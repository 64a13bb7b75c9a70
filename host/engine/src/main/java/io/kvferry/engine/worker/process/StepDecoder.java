// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.process;

import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.model.SamplingOptions;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.worker.CachePlace;
import io.kvferry.engine.worker.EncodeTask;
import io.kvferry.engine.worker.PlannedItem;
import io.kvferry.engine.worker.StepPlan;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.toolkit.recovery.ConnectorChange;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/// Reads what a [StepEncoder] wrote, in a worker process; keeps tokens and blocks of each request
/// until it ends.
final class StepDecoder {
    private static final byte[] NOTHING = new byte[0];

    private final Map<String, Item> requests = new HashMap<>();

    StepPlan decode(WireReader in) {
        long number = in.i64();
        var limit = Deadline.in(Duration.ofNanos(in.i64()));
        var kvPlan = payload(in);
        var kvRevoked = ids(in);
        var ecPlan = payload(in);
        var ecRevoked = ids(in);
        var freed = strings(in);
        var placed = places(in);
        var encodes = encodes(in);
        var kvChange = ConnectorChange.read(in);
        var ecChange = ConnectorChange.read(in);
        var ended = strings(in);
        ended.forEach(requests::remove);
        var items = new ArrayList<Item>();
        for (int n = in.count(30); n > 0; n--) {
            items.add(item(in));
        }
        in.end();
        return new StepPlan(
                number, limit, kvPlan, kvRevoked, ecPlan, ecRevoked, freed, placed, encodes, items,
                ended, kvChange, ecChange);
    }

    private static List<CachePlace> places(WireReader in) {
        var places = new ArrayList<CachePlace>();
        for (int n = in.count(12); n > 0; n--) {
            places.add(new CachePlace(in.string(), in.i32(), in.i32()));
        }
        return places;
    }

    private static List<EncodeTask> encodes(WireReader in) {
        var encodes = new ArrayList<EncodeTask>();
        for (int n = in.count(36); n > 0; n--) {
            var item = EcItem.read(in);
            var input = input(in);
            encodes.add(
                    new EncodeTask(
                            item,
                            new EncoderInput(
                                    input.hash(),
                                    input.modality(),
                                    input.position(),
                                    input.embeddings(),
                                    in.bytes())));
        }
        return encodes;
    }

    private Item item(WireReader in) {
        var id = in.string();
        boolean first = in.bool();
        if (first) {
            requests.put(id, new Item(id, sampling(in), in.i32()));
        }
        var item = requests.get(id);
        if (item == null) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL, "step names request " + id + ", which is unknown here");
        }
        item.read(in);
        return item;
    }

    private static SamplingParams sampling(WireReader in) {
        return new SamplingParams(
                in.i32(),
                in.f64(),
                in.f64(),
                in.i64(),
                strings(in),
                Arrays.stream(in.ints()).boxed().toList(),
                in.bool(),
                options(in));
    }

    private static SamplingOptions options(WireReader in) {
        int topK = in.i32();
        double minP = in.f64();
        double presence = in.f64();
        double frequency = in.f64();
        double repetition = in.f64();
        int minTokens = in.i32();
        int logprobs = in.i32();
        int promptLogprobs = in.i32();
        var bias = new HashMap<Integer, Double>();
        for (int n = in.count(12); n > 0; n--) {
            bias.put(in.i32(), in.f64());
        }
        return new SamplingOptions(
                topK,
                minP,
                presence,
                frequency,
                repetition,
                bias,
                minTokens,
                logprobs,
                promptLogprobs);
    }

    private static EncoderInput input(WireReader in) {
        return new EncoderInput(in.string(), in.string(), in.i32(), in.i32(), NOTHING);
    }

    private static Payload payload(WireReader in) {
        int version = in.i32();
        var bytes = in.bytes();
        return bytes.length == 0 ? Payload.EMPTY : new Payload(version, bytes);
    }

    private static List<TransferId> ids(WireReader in) {
        var ids = new ArrayList<TransferId>();
        for (int n = in.count(13); n > 0; n--) {
            ids.add(TransferId.read(in));
        }
        return ids;
    }

    private static List<String> strings(WireReader in) {
        var texts = new ArrayList<String>();
        for (int n = in.count(4); n > 0; n--) {
            texts.add(in.string());
        }
        return texts;
    }

    /// A request as this process knows it, and its part of the current step.
    private static final class Item implements PlannedItem, BlockTable {
        private final String id;
        private final SamplingParams sampling;
        private final int promptTokens;
        private int[] tokens = new int[64];
        private int tokenCount;
        private int[][] blocks = new int[1][16];
        private int blockCount;
        private int start;
        private int count;
        private int changedFrom;
        private boolean sampled;
        private List<EncoderInput> inputs = List.of();

        Item(String id, SamplingParams sampling, int promptTokens) {
            this.promptTokens = promptTokens;
            this.id = id;
            this.sampling = sampling;
        }

        void read(WireReader in) {
            start = in.i32();
            count = in.i32();
            changedFrom = in.i32();
            sampled = in.bool();
            int newTokens = in.count(4);
            if (tokenCount + newTokens > tokens.length) {
                tokens = Arrays.copyOf(tokens, Math.max(tokenCount + newTokens, 2 * tokens.length));
            }
            for (; newTokens > 0; newTokens--) {
                tokens[tokenCount++] = in.i32();
            }
            readBlocks(in);
            inputs = new ArrayList<>();
            for (int n = in.count(16); n > 0; n--) {
                inputs.add(input(in));
            }
        }

        private void readBlocks(WireReader in) {
            int groups = in.i32();
            int more = in.count(4 * groups);
            if (blocks.length != groups) {
                blocks = new int[groups][16];
            }
            for (int group = 0;
                    group < groups && blockCount + more > blocks[group].length;
                    group++) {
                blocks[group] =
                        Arrays.copyOf(
                                blocks[group],
                                Math.max(blockCount + more, 2 * blocks[group].length));
            }
            for (; more > 0; more--, blockCount++) {
                for (var group : blocks) {
                    group[blockCount] = in.i32();
                }
            }
        }

        @Override
        public String requestId() {
            return id;
        }

        @Override
        public int start() {
            return start;
        }

        @Override
        public int count() {
            return count;
        }

        @Override
        public int tokenAt(int position) {
            return tokens[Objects.checkIndex(position, tokenCount)];
        }

        @Override
        public int changedFrom() {
            return changedFrom;
        }

        @Override
        public BlockTable blocks() {
            return this;
        }

        @Override
        public boolean sampled() {
            return sampled;
        }

        @Override
        public SamplingParams sampling() {
            return sampling;
        }

        @Override
        public int promptTokens() {
            return promptTokens;
        }

        @Override
        public List<EncoderInput> inputs() {
            return inputs;
        }

        @Override
        public int groups() {
            return blocks.length;
        }

        @Override
        public int count(int group) {
            return blockCount;
        }

        @Override
        public int block(int group, int position) {
            return blocks[group][Objects.checkIndex(position, blockCount)];
        }
    }
}
