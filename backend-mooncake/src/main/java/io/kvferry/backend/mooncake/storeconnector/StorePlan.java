// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.storeconnector.keys.BlockNames;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion.FailedBlocks;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.stream.IntStream;

/// What the scheduler half tells the worker halves for one step.
record StorePlan(List<Move> loads, List<Move> saves) {
    private static final int VERSION = 1;

    /// Consecutive blocks of one request to load or save.
    ///
    /// @param first position of the first block in the request's table
    /// @param ids block ids by group, then by position
    @SuppressWarnings("ArrayRecordComponent") // columnar on purpose; never compared
    record Move(TransferId id, int first, List<BlockHash> hashes, int[][] ids) {
        /// Blocks `first` to `end` (exclusive) of a request.
        static Move of(
                TransferId id,
                BlockNames names,
                RequestView request,
                BlockTable table,
                int first,
                int end) {
            var ids = new int[table.groups()][];
            for (int group = 0; group < ids.length; group++) {
                ids[group] = table.copy(group, first, end);
            }
            var hashes = new ArrayList<BlockHash>(end - first);
            for (int block = first; block < end; block++) {
                hashes.add(names.hash(request, block));
            }
            return new Move(id, first, hashes, ids);
        }

        /// Position behind the last block.
        int end() {
            return first + hashes.size();
        }

        /// The rest when these blocks have failed; empty when none is named, or others are: then
        /// any may have failed.
        Optional<Move> without(List<FailedBlocks> failed) {
            int[][] rest = Arrays.stream(ids).map(int[]::clone).toArray(int[][]::new);
            boolean named = false;
            for (var blocks : failed) {
                for (int position : blocks.positions()) {
                    if (!has(blocks.group(), position)) {
                        return Optional.empty();
                    }
                    rest[blocks.group()][position - first] = BlockTable.NO_BLOCK;
                    named = true;
                }
            }
            return named ? Optional.of(new Move(id, first, hashes, rest)) : Optional.empty();
        }

        private boolean has(int group, int position) {
            return 0 <= group
                    && group < ids.length
                    && first <= position
                    && position < end()
                    && ids[group][position - first] != BlockTable.NO_BLOCK;
        }

        /// All blocks of the move, for reporting a move that failed as a whole.
        List<FailedBlocks> allBlocks() {
            var all = new ArrayList<FailedBlocks>();
            for (int group = 0; group < ids.length; group++) {
                int[] own = ids[group];
                int[] positions =
                        IntStream.range(0, own.length)
                                .filter(i -> own[i] != BlockTable.NO_BLOCK)
                                .map(i -> first + i)
                                .toArray();
                if (positions.length > 0) {
                    all.add(new FailedBlocks(group, positions));
                }
            }
            return all;
        }
    }

    static StorePlan empty() {
        return new StorePlan(new ArrayList<>(), new ArrayList<>());
    }

    Payload encode() {
        if (loads.isEmpty() && saves.isEmpty()) {
            return Payload.EMPTY;
        }
        var out = new WireWriter();
        write(out, loads);
        write(out, saves);
        return out.toPayload(VERSION);
    }

    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] on another version, [ErrorCode#PROTOCOL]
    ///   on damage
    static StorePlan decode(Payload payload) {
        if (payload.isEmpty()) {
            return empty();
        }
        WireReader in = payload.reader("plan of MooncakeStoreConnector", VERSION);
        var plan = new StorePlan(read(in), read(in));
        in.end();
        return plan;
    }

    private static void write(WireWriter out, List<Move> moves) {
        out.i32(moves.size());
        for (Move move : moves) {
            move.id.write(out);
            out.i32(move.first).i32(move.hashes.size());
            move.hashes.forEach(hash -> out.raw(hash.toBytes(), 0, BlockHash.BYTES));
            out.i32(move.ids.length);
            for (int[] ids : move.ids) {
                out.ints(ids);
            }
        }
    }

    private static List<Move> read(WireReader in) {
        var moves = new ArrayList<Move>();
        for (int n = in.count(25); n > 0; n--) {
            var id = TransferId.read(in);
            int first = in.i32();
            var hashes = new ArrayList<BlockHash>();
            for (int h = in.count(BlockHash.BYTES); h > 0; h--) {
                hashes.add(BlockHash.of(in.raw(BlockHash.BYTES), 0));
            }
            var ids = new int[in.count(4)][];
            for (int group = 0; group < ids.length; group++) {
                ids[group] = in.ints();
                if (ids[group].length != hashes.size()) {
                    throw new KvFerryException(
                            ErrorCode.PROTOCOL,
                            id
                                    + ": "
                                    + hashes.size()
                                    + " hashes, "
                                    + ids[group].length
                                    + " blocks of group "
                                    + group);
                }
            }
            moves.add(new Move(id, first, hashes, ids));
        }
        return moves;
    }
}
