// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.block.BlockKey;
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
import java.util.Collection;
import java.util.List;
import java.util.stream.IntStream;

/// The loads and saves of one step, from the scheduler half to the worker halves.
///
/// @param used files that ended transfers have used, the first of a prompt first, for worker halves
///   in other processes: those evict, and know only when each file was written or read
record DiskPlan(List<Move> loads, List<Move> saves, List<BlockKey> used) {
    private static final int VERSION = 4;

    /// Most of `used`, which is but a hint.
    private static final int MOST_USED = 16_384;

    /// A run of blocks in one file, see [FileLayout].
    ///
    /// @param start position of its first block
    /// @param blocks of it that belong to the request; fewer than all where another prompt left it
    /// @param last hash of its last block, which names the file
    record Run(int start, int blocks, BlockHash last) {}

    /// Consecutive blocks of one request to load or save.
    ///
    /// @param sync whether the step waits for it
    /// @param first position of the first block in the request's table
    /// @param ids block ids by group, then by position
    /// @param runLength blocks of each run
    /// @param runs those of these blocks, by position, that are in one file with their neighbours;
    ///   a run may begin before the first or end behind the last block of the move
    @SuppressWarnings("ArrayRecordComponent") // columnar on purpose; never compared
    record Move(
            TransferId id,
            boolean sync,
            int first,
            List<BlockHash> hashes,
            int[][] ids,
            int runLength,
            List<Run> runs) {
        /// The hashes of its blocks at these positions of the request's table, `end` exclusive.
        List<BlockHash> hashes(int from, int end) {
            return List.copyOf(hashes.subList(from - first, end - first));
        }

        /// All blocks of the move, as those of a transfer that failed altogether.
        List<FailedBlocks> allBlocks() {
            var all = new ArrayList<FailedBlocks>();
            for (int group = 0; group < ids.length; group++) {
                int index = group;
                int[] positions =
                        IntStream.range(0, hashes.size())
                                .filter(i -> ids[index][i] != BlockTable.NO_BLOCK)
                                .map(i -> first + i)
                                .toArray();
                if (positions.length > 0) {
                    all.add(new FailedBlocks(group, positions));
                }
            }
            return all;
        }

        /// Blocks `first` to `end` (exclusive) of a request.
        ///
        /// @param runs files of several blocks, in order
        static Move of(
                TransferId id,
                boolean sync,
                RequestView request,
                BlockTable table,
                FileLayout layout,
                Collection<Run> runs,
                int first,
                int end) {
            var ids = new int[layout.groups()][];
            for (int group = 0; group < layout.groups(); group++) {
                ids[group] = table.copy(group, first, end);
            }
            var hashes = new ArrayList<BlockHash>(end - first);
            for (int block = first; block < end; block++) {
                hashes.add(request.blockHash(block));
            }
            var own =
                    runs.stream()
                            .filter(run -> run.start() < end && run.start() + run.blocks() > first)
                            .toList();
            return new Move(id, sync, first, hashes, ids, layout.run(), own);
        }
    }

    static DiskPlan empty() {
        return new DiskPlan(new ArrayList<>(), new ArrayList<>(), new ArrayList<>());
    }

    /// Adds files that were used, as many as there is room for.
    void addUsed(List<BlockKey> keys) {
        used.addAll(keys.subList(0, Math.min(keys.size(), MOST_USED - used.size())));
    }

    Payload encode() {
        if (loads.isEmpty() && saves.isEmpty() && used.isEmpty()) {
            return Payload.EMPTY;
        }
        var out = new WireWriter();
        write(out, loads);
        write(out, saves);
        out.i32(used.size());
        used.forEach(key -> out.string(key.toString()).i32(key.depth()));
        return out.toPayload(VERSION);
    }

    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] on another version, [ErrorCode#PROTOCOL]
    ///   on damage
    static DiskPlan decode(Payload payload) {
        if (payload.isEmpty()) {
            return empty();
        }
        WireReader in = payload.reader("plan of DiskConnector", VERSION);
        var plan = new DiskPlan(read(in), read(in), readUsed(in));
        in.end();
        return plan;
    }

    private static List<BlockKey> readUsed(WireReader in) {
        var used = new ArrayList<BlockKey>();
        for (int n = in.count(2 * Integer.BYTES); n > 0; n--) {
            used.add(BlockKey.of(in.string(), in.i32()));
        }
        return used;
    }

    private static void write(WireWriter out, List<Move> moves) {
        out.i32(moves.size());
        for (Move move : moves) {
            move.id.write(out);
            out.bool(move.sync).i32(move.first).i32(move.hashes.size());
            move.hashes.forEach(hash -> out.raw(hash.toBytes(), 0, BlockHash.BYTES));
            out.i32(move.ids.length);
            for (int[] ids : move.ids) {
                out.ints(ids);
            }
            out.i32(move.runLength).i32(move.runs.size());
            for (Run run : move.runs) {
                out.i32(run.start).i32(run.blocks).raw(run.last.toBytes(), 0, BlockHash.BYTES);
            }
        }
    }

    private static List<Move> read(WireReader in) {
        var moves = new ArrayList<Move>();
        for (int n = in.count(30); n > 0; n--) {
            var id = TransferId.read(in);
            boolean sync = in.bool();
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
            int runLength = in.i32();
            var runs = new ArrayList<Run>();
            for (int r = in.count(2 * Integer.BYTES + BlockHash.BYTES); r > 0; r--) {
                runs.add(new Run(in.i32(), in.i32(), BlockHash.of(in.raw(BlockHash.BYTES), 0)));
            }
            moves.add(new Move(id, sync, first, hashes, ids, runLength, runs));
        }
        return moves;
    }
}
