// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.common;

import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.ArrayList;
import java.util.List;

/// The message of the scheduler half to the worker halves in one step.
///
/// @param expects transfers that a prefill has begun for
/// @param sends finished prefills whose blocks are held for the decoder
/// @param withdrawals transfers that will not happen
/// @param pulls loads to fetch from prefillers
public record MooncakePlan(
        List<String> expects, List<Send> sends, List<Withdrawal> withdrawals, List<Pull> pulls) {
    static final int VERSION = 1;

    public MooncakePlan {
        expects = List.copyOf(expects);
        sends = List.copyOf(sends);
        withdrawals = List.copyOf(withdrawals);
        pulls = List.copyOf(pulls);
    }

    /// @param hold completed by every rank once the decoder has the blocks
    /// @param blocks ids per KV cache group, the whole prompt
    public record Send(TransferId hold, String transferId, List<int[]> blocks) {}

    /// @param reason for the decoder that may wait already
    public record Withdrawal(String transferId, String reason) {}

    /// @param load completed by every rank once the blocks are filled; meaningless for a release
    /// @param request the decoder's name for it on the wire
    /// @param bootstrap address of the prefiller's bootstrap service
    /// @param blocks ids per KV cache group; no group for a release
    /// @param bytes that the load moves on one rank
    public record Pull(
            TransferId load,
            String request,
            String transferId,
            String engineId,
            String bootstrap,
            List<int[]> blocks,
            long bytes) {
        public boolean release() {
            return blocks.isEmpty();
        }

        public Pull asRelease() {
            return new Pull(load, request, transferId, engineId, bootstrap, List.of(), 0);
        }
    }

    public Payload encode() {
        if (expects.isEmpty() && sends.isEmpty() && withdrawals.isEmpty() && pulls.isEmpty()) {
            return Payload.EMPTY;
        }
        var out = new WireWriter(512);
        out.i32(expects.size());
        expects.forEach(out::string);
        out.i32(sends.size());
        for (var send : sends) {
            send.hold().write(out);
            out.string(send.transferId());
            writeBlocks(out, send.blocks());
        }
        out.i32(withdrawals.size());
        withdrawals.forEach(
                withdrawal -> out.string(withdrawal.transferId()).string(withdrawal.reason()));
        out.i32(pulls.size());
        for (var pull : pulls) {
            pull.load().write(out);
            out.string(pull.request())
                    .string(pull.transferId())
                    .string(pull.engineId())
                    .string(pull.bootstrap());
            writeBlocks(out, pull.blocks());
            out.i64(pull.bytes());
        }
        return out.toPayload(VERSION);
    }

    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] on another version, [ErrorCode#PROTOCOL]
    ///   on damage
    public static MooncakePlan decode(Payload payload) {
        if (payload.isEmpty()) {
            return new MooncakePlan(List.of(), List.of(), List.of(), List.of());
        }
        var in = payload.reader("plan of MooncakeConnector", VERSION);
        var expects = new ArrayList<String>();
        for (int n = in.count(4); n > 0; n--) {
            expects.add(in.string());
        }
        var sends = new ArrayList<Send>();
        for (int n = in.count(21); n > 0; n--) {
            sends.add(new Send(TransferId.read(in), in.string(), readBlocks(in)));
        }
        var withdrawals = new ArrayList<Withdrawal>();
        for (int n = in.count(8); n > 0; n--) {
            withdrawals.add(new Withdrawal(in.string(), in.string()));
        }
        var pulls = new ArrayList<Pull>();
        for (int n = in.count(41); n > 0; n--) {
            pulls.add(
                    new Pull(
                            TransferId.read(in),
                            in.string(),
                            in.string(),
                            in.string(),
                            in.string(),
                            readBlocks(in),
                            in.i64()));
        }
        in.end();
        return new MooncakePlan(expects, sends, withdrawals, pulls);
    }

    private static void writeBlocks(WireWriter out, List<int[]> groups) {
        out.i32(groups.size());
        groups.forEach(out::ints);
    }

    private static List<int[]> readBlocks(WireReader in) {
        var groups = new ArrayList<int[]>();
        for (int n = in.count(4); n > 0; n--) {
            groups.add(in.ints());
        }
        return groups;
    }
}
