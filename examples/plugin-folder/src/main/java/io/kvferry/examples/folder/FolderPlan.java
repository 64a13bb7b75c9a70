// SPDX-License-Identifier: Apache-2.0
package io.kvferry.examples.folder;

import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.ArrayList;
import java.util.List;

/// What the scheduler half sends to the worker halves for one step. Always encoded as bytes with a
/// version, even within one process.
record FolderPlan(List<Job> loads, List<Job> saves) {
    private static final int VERSION = 1;

    /// Blocks of one request, from position `first` of its block table on.
    ///
    /// @param id of the load; a save is over with its step and reports nothing
    @SuppressWarnings("ArrayRecordComponent") // never compared
    record Job(TransferId id, int first, List<BlockHash> hashes, int[] blocks) {}

    FolderPlan() {
        this(new ArrayList<>(), new ArrayList<>());
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

    static FolderPlan decode(Payload payload) {
        if (payload.isEmpty()) {
            return new FolderPlan();
        }
        var in = payload.reader("plan", VERSION);
        var plan = new FolderPlan(read(in), read(in));
        in.end();
        return plan;
    }

    private static void write(WireWriter out, List<Job> jobs) {
        out.i32(jobs.size());
        for (var job : jobs) {
            job.id.write(out);
            out.i32(job.first).ints(job.blocks);
            job.hashes.forEach(hash -> out.raw(hash.toBytes(), 0, BlockHash.BYTES));
        }
    }

    private static List<Job> read(WireReader in) {
        var jobs = new ArrayList<Job>();
        for (int n = in.count(8); n > 0; n--) {
            var id = TransferId.read(in);
            int first = in.i32();
            var blocks = in.ints();
            var hashes = new ArrayList<BlockHash>();
            for (int i = 0; i < blocks.length; i++) {
                hashes.add(BlockHash.of(in.raw(BlockHash.BYTES), 0));
            }
            jobs.add(new Job(id, first, hashes, blocks));
        }
        return jobs;
    }
}
