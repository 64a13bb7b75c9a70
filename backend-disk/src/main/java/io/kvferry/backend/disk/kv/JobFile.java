// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.memory.BlockHash;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/// One file of a transfer of one rank: the blocks of one group in it, and their memory.
///
/// @param positions of the blocks in it that the transfer is about
/// @param hashes of those
/// @param bytes of those
@SuppressWarnings("ArrayRecordComponent") // never compared
record JobFile(
        BlockKey key,
        int group,
        int[] positions,
        List<BlockHash> hashes,
        List<MemorySegment> segments,
        long bytes) {

    /// The files of a move, in the order of its blocks.
    static List<JobFile> of(DiskPlan.Move move, List<RegionMemory> memory, int rank) {
        Map<Integer, DiskPlan.Run> runs = new HashMap<>();
        move.runs().forEach(run -> runs.put(run.start(), run));
        var files = new ArrayList<JobFile>();
        int end = move.first() + move.hashes().size();
        for (int at = move.first(); at < end; ) {
            var run = runs.get(at - at % move.runLength());
            if (run != null && at >= run.start() + run.blocks()) {
                run = null;
            }
            int next = run == null ? at + 1 : Math.min(end, run.start() + run.blocks());
            for (int group = 0; group < memory.size(); group++) {
                if (run == null) {
                    var key = KvKeys.of(move.hashes().get(at - move.first()), group, rank, at);
                    add(files, move, memory, group, key, at, next, at, next);
                } else {
                    int start = run.start();
                    int length = move.runLength();
                    var key = KvKeys.ofRun(run.last(), group, rank, start, length);
                    add(files, move, memory, group, key, start, start + length, at, next);
                }
            }
            at = next;
        }
        return files;
    }

    /// Adds the file of blocks `start` to `end`, of which `from` to `to` belong to the move; none
    /// when the group has no memory for any of these.
    private static void add(
            List<JobFile> files,
            DiskPlan.Move move,
            List<RegionMemory> memory,
            int group,
            BlockKey key,
            int start,
            int end,
            int from,
            int to) {
        var region = memory.get(group);
        var positions = new ArrayList<Integer>();
        var hashes = new ArrayList<BlockHash>();
        var ids = new int[end - start];
        long bytes = 0;
        for (int at = start; at < end; at++) {
            boolean own = at >= from && at < to;
            int id = own ? move.ids()[group][at - move.first()] : BlockTable.NO_BLOCK;
            ids[at - start] = id;
            if (id != BlockTable.NO_BLOCK) {
                positions.add(at);
                hashes.add(move.hashes().get(at - move.first()));
                bytes += region.blockBytes();
            }
        }
        if (!positions.isEmpty()) {
            files.add(
                    new JobFile(
                            key,
                            group,
                            positions.stream().mapToInt(Integer::intValue).toArray(),
                            List.copyOf(hashes),
                            region.segments(ids),
                            bytes));
        }
    }
}
