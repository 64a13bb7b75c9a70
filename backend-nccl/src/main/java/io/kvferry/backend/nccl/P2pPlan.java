// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.backend.nccl.wire.PromptMark;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.ArrayList;
import java.util.List;

/// What the scheduler half tells the worker halves in one step. Blocks are ids per KV cache group,
/// the last ones of the prompt, without gaps.
///
/// @param pushes prompts whose last tokens are computed in this step
/// @param holds finished prompts whose blocks are held for the decoder
/// @param withdrawals transfers that will not happen
/// @param loads what to receive
/// @param releases what this engine will not receive
record P2pPlan(
        List<Push> pushes,
        List<Hold> holds,
        List<Withdrawal> withdrawals,
        List<Load> loads,
        List<Release> releases) {
    static final int VERSION = 1;

    P2pPlan {
        pushes = List.copyOf(pushes);
        holds = List.copyOf(holds);
        withdrawals = List.copyOf(withdrawals);
        loads = List.copyOf(loads);
        releases = List.copyOf(releases);
    }

    /// Where the ranks of an engine listen: one address for each, or that of rank 0 alone.
    ///
    /// @param epoch of the engine, 0 where it is not known
    record Peer(List<String> addresses, long epoch) {
        static final Peer NONE = new Peer(List.of(), PeerMessage.ANY_EPOCH);

        Peer {
            addresses = List.copyOf(addresses);
        }

        private void write(WireWriter out) {
            out.i32(addresses.size());
            addresses.forEach(out::string);
            out.i64(epoch);
        }

        private static Peer read(WireReader in) {
            var addresses = new ArrayList<String>();
            for (int n = in.count(4); n > 0; n--) {
                addresses.add(in.string());
            }
            return new Peer(addresses, in.i64());
        }
    }

    /// @param request of this engine, as in `endStep`
    record Push(
            String request, String transfer, Peer decoder, PromptMark prompt, List<int[]> blocks) {}

    /// @param id completed by every rank once the blocks are not needed any more
    record Hold(TransferId id, String transfer, PromptMark prompt, List<int[]> blocks) {}

    /// @param reason for the decoder that may wait already
    record Withdrawal(String transfer, String reason) {}

    /// @param id completed by every rank once the blocks are filled
    /// @param prefiller [Peer#NONE] where the blocks are not the last ones of the prompt: it fails
    record Load(
            TransferId id,
            String transfer,
            Peer prefiller,
            PromptMark prompt,
            List<int[]> blocks) {}

    record Release(String transfer, Peer prefiller) {}

    boolean isEmpty() {
        return pushes.isEmpty()
                && holds.isEmpty()
                && withdrawals.isEmpty()
                && loads.isEmpty()
                && releases.isEmpty();
    }

    Payload encode() {
        if (isEmpty()) {
            return Payload.EMPTY;
        }
        var out = new WireWriter(512);
        out.i32(pushes.size());
        for (var push : pushes) {
            out.string(push.request).string(push.transfer);
            push.decoder.write(out);
            push.prompt.write(out);
            write(out, push.blocks);
        }
        out.i32(holds.size());
        for (var hold : holds) {
            hold.id.write(out);
            out.string(hold.transfer);
            hold.prompt.write(out);
            write(out, hold.blocks);
        }
        out.i32(withdrawals.size());
        withdrawals.forEach(each -> out.string(each.transfer).string(each.reason));
        out.i32(loads.size());
        for (var load : loads) {
            load.id.write(out);
            out.string(load.transfer);
            load.prefiller.write(out);
            load.prompt.write(out);
            write(out, load.blocks);
        }
        out.i32(releases.size());
        for (var release : releases) {
            out.string(release.transfer);
            release.prefiller.write(out);
        }
        return out.toPayload(VERSION);
    }

    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] on another version, [ErrorCode#PROTOCOL]
    ///   on damage
    static P2pPlan decode(Payload payload) {
        if (payload.isEmpty()) {
            return new P2pPlan(List.of(), List.of(), List.of(), List.of(), List.of());
        }
        var in = payload.reader("plan of P2pNcclConnector", VERSION);
        var pushes = new ArrayList<Push>();
        for (int n = in.count(36); n > 0; n--) {
            pushes.add(
                    new Push(
                            in.string(),
                            in.string(),
                            Peer.read(in),
                            PromptMark.read(in),
                            readBlocks(in)));
        }
        var holds = new ArrayList<Hold>();
        for (int n = in.count(37); n > 0; n--) {
            holds.add(
                    new Hold(
                            TransferId.read(in), in.string(), PromptMark.read(in), readBlocks(in)));
        }
        var withdrawals = new ArrayList<Withdrawal>();
        for (int n = in.count(8); n > 0; n--) {
            withdrawals.add(new Withdrawal(in.string(), in.string()));
        }
        var loads = new ArrayList<Load>();
        for (int n = in.count(49); n > 0; n--) {
            loads.add(
                    new Load(
                            TransferId.read(in),
                            in.string(),
                            Peer.read(in),
                            PromptMark.read(in),
                            readBlocks(in)));
        }
        var releases = new ArrayList<Release>();
        for (int n = in.count(16); n > 0; n--) {
            releases.add(new Release(in.string(), Peer.read(in)));
        }
        in.end();
        return new P2pPlan(pushes, holds, withdrawals, loads, releases);
    }

    private static void write(WireWriter out, List<int[]> groups) {
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
