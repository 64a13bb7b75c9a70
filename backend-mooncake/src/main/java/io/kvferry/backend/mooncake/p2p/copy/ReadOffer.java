// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.copy;

import io.kvferry.backend.mooncake.p2p.copy.CopyPlan.RegionCopy;
import io.kvferry.backend.mooncake.p2p.plane.ReadWindow;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.ArrayList;
import java.util.List;

/// Where a decoder worker finds the blocks of one request in a prefiller's memory. Small, however
/// long the prompt: the plan holds a line per layer, the ranges are made of it by the reader.
///
/// @param ticket names the offer in the decoder's report
/// @param withinMillis how long the prefiller waits for that report
/// @param plan from the prefiller's memory to the decoder's
/// @param blocks the prefiller's, by group
public record ReadOffer(
        long ticket,
        long withinMillis,
        ReadWindow.Source source,
        CopyPlan plan,
        List<int[]> blocks) {
    private static final int VERSION = 1;
    private static final int NUMBERS = 12;
    private static final int MOST_ROWS = 1 << 16;

    /// No cache has more pieces than this; a prefiller that announces more is refused.
    private static final long MOST_RANGES = 1 << 24;

    public byte[] encode() {
        var out = new WireWriter(1024);
        out.i32(VERSION).i64(ticket).i64(withinMillis);
        out.string(source.peer().agent()).i64(source.peer().incarnation());
        out.bytes(source.metadata());
        out.i32(plan.groups()).i32(plan.exchanges()).i32(plan.copies().size());
        for (var copy : plan.copies()) {
            out.longs(
                    new long[] {
                        copy.group(),
                        copy.blocks(),
                        copy.localBase(),
                        copy.localStride(),
                        copy.localOffset(),
                        copy.remoteBase(),
                        copy.remoteStride(),
                        copy.remoteOffset(),
                        copy.rows(),
                        copy.localRow(),
                        copy.remoteRow(),
                        copy.length()
                    });
        }
        out.i32(blocks.size());
        blocks.forEach(out::ints);
        return out.toByteArray();
    }

    /// @throws KvFerryException [ErrorCode#PROTOCOL]
    public static ReadOffer decode(byte[] bytes) {
        var in = new WireReader(bytes);
        int version = in.i32();
        if (version != VERSION) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE, "an offer of version " + version + ", not " + VERSION);
        }
        long ticket = in.i64();
        long within = in.i64();
        var agent = in.string();
        long incarnation = in.i64();
        var metadata = in.bytes();
        int groups = in.i32();
        int exchanges = in.i32();
        int count = in.count(4 + NUMBERS * Long.BYTES);
        var copies = new ArrayList<RegionCopy>(count);
        for (int i = 0; i < count; i++) {
            copies.add(copy(in.longs(), groups));
        }
        int lists = in.count(4);
        var blocks = new ArrayList<int[]>(lists);
        for (int i = 0; i < lists; i++) {
            blocks.add(in.ints());
        }
        in.end();
        if (agent.isBlank()) {
            throw protocol("an offer without an agent");
        }
        return new ReadOffer(
                ticket,
                within,
                new ReadWindow.Source(new PeerId(agent, incarnation), metadata),
                new CopyPlan(copies, groups, exchanges),
                blocks);
    }

    private static RegionCopy copy(long[] n, int groups) {
        if (n.length != NUMBERS
                || n[0] < 0
                || n[0] >= groups
                || n[1] < 0
                || n[1] > Integer.MAX_VALUE
                || n[8] < 1
                || n[8] > MOST_ROWS
                || n[11] < 1) {
            throw protocol("an offer with an impossible plan");
        }
        return new RegionCopy(
                (int) n[0],
                (int) n[1],
                n[2],
                n[3],
                n[4],
                n[5],
                n[6],
                n[7],
                (int) n[8],
                n[9],
                n[10],
                n[11]);
    }

    /// The ranges to read: from the prefiller's addresses (remote) to the decoder's (local).
    ///
    /// @param wanted the decoder's blocks, by group
    /// @throws KvFerryException [ErrorCode#PROTOCOL] when the offer does not fit them
    public Ranges ranges(List<int[]> wanted) {
        var mismatch = plan.mismatch(blocks, wanted);
        if (!mismatch.isEmpty()) {
            throw protocol(mismatch);
        }
        long most = 0;
        for (var copy : plan.copies()) {
            most += (long) copy.rows() * wanted.get(copy.group()).length;
        }
        if (most > MOST_RANGES) {
            throw protocol("an offer of " + most + " ranges");
        }
        var ranges = new Ranges(256);
        try {
            plan.append(
                    blocks,
                    wanted,
                    (CopyPlan.Taker) (theirs, ours, length) -> ranges.add(ours, theirs, length));
        } catch (IllegalArgumentException | ArithmeticException e) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL, "an offer with an impossible plan: " + e.getMessage(), e);
        }
        return ranges;
    }

    private static KvFerryException protocol(String what) {
        return new KvFerryException(ErrorCode.PROTOCOL, what);
    }
}
