// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/// What the scheduler half of [MemoryConnectorProvider] tells its worker halves for one step.
record MemoryPlan(List<Load> loads, List<Save> saves, List<Offer> offers, List<Verdict> verdicts) {
    private static final int VERSION = 1;

    /// Blocks of a request from a position on: their hashes (none for a hand-off) and their ids by
    /// group.
    @SuppressWarnings("ArrayRecordComponent") // columnar on purpose; never compared
    record Blocks(int first, List<BlockHash> hashes, int[][] ids) {
        int count() {
            return ids[0].length;
        }

        /// Whether there is a block of that group at an index.
        boolean has(int group, int index) {
            return ids[group][index] != BlockTable.NO_BLOCK;
        }
    }

    /// @param handOff the producer's hand-off to read from, empty for the store
    record Load(TransferId id, LoadMode mode, String handOff, Blocks blocks) {}

    /// @param request whose blocks these are
    /// @param id reported when done; empty for a save that ends with the step
    /// @param after a synchronous load of the same step: what is saved may be published only after
    ///   the verdict on it
    record Save(
            String request, Optional<TransferId> id, Optional<TransferId> after, Blocks blocks) {}

    /// How a load that saves rest on has ended on all ranks.
    record Verdict(TransferId load, boolean completed) {}

    /// Blocks to offer under a hold or lease.
    record Offer(TransferId id, String key, Blocks blocks) {}

    static MemoryPlan empty() {
        return new MemoryPlan(
                new ArrayList<>(), new ArrayList<>(), new ArrayList<>(), new ArrayList<>());
    }

    boolean isEmpty() {
        return loads.isEmpty() && saves.isEmpty() && offers.isEmpty() && verdicts.isEmpty();
    }

    Payload encode() {
        if (isEmpty()) {
            return Payload.EMPTY;
        }
        var out = new WireWriter();
        out.i32(loads.size());
        for (var load : loads) {
            load.id.write(out);
            out.bool(load.mode == LoadMode.SYNC).string(load.handOff);
            write(out, load.blocks);
        }
        out.i32(saves.size());
        for (var save : saves) {
            out.string(save.request);
            write(out, save.id);
            write(out, save.after);
            write(out, save.blocks);
        }
        out.i32(offers.size());
        for (var offer : offers) {
            offer.id.write(out);
            out.string(offer.key);
            write(out, offer.blocks);
        }
        out.i32(verdicts.size());
        for (var verdict : verdicts) {
            verdict.load.write(out);
            out.bool(verdict.completed);
        }
        return out.toPayload(VERSION);
    }

    static MemoryPlan decode(Payload payload) {
        var plan = empty();
        if (payload.isEmpty()) {
            return plan;
        }
        var in = payload.reader("plan", VERSION);
        for (int n = in.count(18); n > 0; n--) {
            var id = TransferId.read(in);
            var mode = in.bool() ? LoadMode.SYNC : LoadMode.ASYNC;
            plan.loads.add(new Load(id, mode, in.string(), read(in)));
        }
        for (int n = in.count(17); n > 0; n--) {
            plan.saves.add(new Save(in.string(), readId(in), readId(in), read(in)));
        }
        for (int n = in.count(18); n > 0; n--) {
            plan.offers.add(new Offer(TransferId.read(in), in.string(), read(in)));
        }
        for (int n = in.count(18); n > 0; n--) {
            plan.verdicts.add(new Verdict(TransferId.read(in), in.bool()));
        }
        in.end();
        return plan;
    }

    private static void write(WireWriter out, Optional<TransferId> id) {
        out.bool(id.isPresent());
        id.ifPresent(there -> there.write(out));
    }

    private static Optional<TransferId> readId(WireReader in) {
        return in.bool() ? Optional.of(TransferId.read(in)) : Optional.empty();
    }

    private static void write(WireWriter out, Blocks blocks) {
        out.i32(blocks.first).i32(blocks.hashes.size());
        blocks.hashes.forEach(hash -> out.raw(hash.toBytes(), 0, BlockHash.BYTES));
        out.i32(blocks.ids.length);
        for (var ids : blocks.ids) {
            out.ints(ids);
        }
    }

    private static Blocks read(WireReader in) {
        int first = in.i32();
        var hashes = new ArrayList<BlockHash>();
        for (int n = in.count(BlockHash.BYTES); n > 0; n--) {
            hashes.add(BlockHash.of(in.raw(BlockHash.BYTES), 0));
        }
        var ids = new int[in.count(4)][];
        for (int group = 0; group < ids.length; group++) {
            ids[group] = in.ints();
        }
        return new Blocks(first, hashes, ids);
    }
}
