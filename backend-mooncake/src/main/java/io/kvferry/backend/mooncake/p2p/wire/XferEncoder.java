// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.wire;

import io.kvferry.toolkit.msgpack.MsgpackSetup;

import org.msgpack.core.MessageBufferPacker;
import org.msgpack.core.MessagePack;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.math.BigInteger;
import java.util.List;
import java.util.Map;

/// Writes the side channel's messages byte for byte as msgspec writes vLLM's structs: maps with the
/// fields in declaration order, fields equal to their default left out.
public final class XferEncoder {
    static {
        MsgpackSetup.apply();
    }

    private static final BigInteger TWO_64 = BigInteger.ONE.shiftLeft(64);

    private XferEncoder() {}

    /// The request in the form of its generation. What the generation has no field for is left out;
    /// whether the rest still says what is meant is for the caller to know.
    ///
    /// @throws IllegalArgumentException for several groups in a generation of flat lists
    public static byte[] request(XferMetadata message) {
        try (var out = MessagePack.newDefaultBufferPacker()) {
            out.packMapHeader(fieldCount(message));
            string(out, "remote_hostname", message.remoteHostname());
            number(out, "remote_port", message.remotePort());
            number(out, "remote_tp_size", message.remoteTpSize());
            number(out, "remote_tp_rank", message.remoteTpRank());
            reqBlocks(out, message);
            regions(out, message);
            if (hasPpSize(message)) {
                number(out, "remote_pp_size", message.remotePpSize());
            }
            if (hasLayoutId(message)) {
                out.packString("layout_id");
                unsigned(out, message.layoutId());
            }
            if (message.extension().isPresent()) {
                extension(out, message.extension().get());
            }
            return out.toByteArray();
        } catch (IOException e) {
            throw new UncheckedIOException("packing into memory does not fail", e);
        }
    }

    /// The response; with layout id 0 it has the same form in every generation.
    public static byte[] response(XferResponse message) {
        try (var out = MessagePack.newDefaultBufferPacker()) {
            out.packMapHeader(
                    1
                            + (message.okReqs().isEmpty() ? 0 : 1)
                            + (message.errReqs().isEmpty() ? 0 : 1)
                            + (message.errMsg().isEmpty() ? 0 : 1)
                            + (message.layoutId() == 0 ? 0 : 1)
                            + (message.offers().isEmpty() ? 0 : 1));
            number(out, "status", message.status().wire());
            strings(out, "ok_reqs", message.okReqs());
            strings(out, "err_reqs", message.errReqs());
            if (!message.errMsg().isEmpty()) {
                string(out, "err_msg", message.errMsg());
            }
            if (message.layoutId() != 0) {
                out.packString("layout_id");
                unsigned(out, message.layoutId());
            }
            offers(out, message.offers());
            return out.toByteArray();
        } catch (IOException e) {
            throw new UncheckedIOException("packing into memory does not fail", e);
        }
    }

    private static void offers(MessageBufferPacker out, Map<String, byte[]> offers)
            throws IOException {
        if (offers.isEmpty()) {
            return;
        }
        out.packString("kvferry_offers");
        out.packMapHeader(offers.size());
        for (var offer : offers.entrySet()) {
            out.packString(offer.getKey());
            out.packBinaryHeader(offer.getValue().length);
            out.writePayload(offer.getValue());
        }
    }

    private static int fieldCount(XferMetadata message) {
        var generation = message.generation();
        var regions = message.regions();
        int count = 6;
        if (generation != Generation.G2) {
            count++;
        }
        if (generation.namesLayers()) {
            count +=
                    (regions.layerNames().isEmpty() ? 0 : 1)
                            + (regions.layerIndices().length == 0 ? 0 : 1);
        }
        if (generation.tellsStrides()) {
            count += 1 + (regions.groups().length == 0 ? 0 : 1);
        }
        if (generation == Generation.G7) {
            count +=
                    (regions.sharedGroups().isEmpty() ? 0 : 1)
                            + (regions.rowOffsets().length == 0 ? 0 : 1);
        }
        return count
                + (hasPpSize(message) ? 1 : 0)
                + (hasLayoutId(message) ? 1 : 0)
                + message.extension()
                        .map(extension ->
                                5
                                        + (extension.reader().isEmpty() ? 0 : 1)
                                        + (extension.worker().isEmpty() ? 0 : 1))
                        .orElse(0);
    }

    private static boolean hasPpSize(XferMetadata message) {
        return message.generation().compareTo(Generation.G6) >= 0 && message.remotePpSize() != 1;
    }

    private static boolean hasLayoutId(XferMetadata message) {
        return message.generation() == Generation.G7 && message.layoutId() != 0;
    }

    private static void reqBlocks(MessageBufferPacker out, XferMetadata message)
            throws IOException {
        out.packString("req_blocks");
        out.packMapHeader(message.reqBlocks().size());
        for (var entry : message.reqBlocks().entrySet()) {
            out.packString(entry.getKey());
            out.packArrayHeader(2);
            out.packString(entry.getValue().transferId());
            blocks(out, message.generation(), entry.getValue().groups());
        }
    }

    private static void blocks(MessageBufferPacker out, Generation generation, List<int[]> groups)
            throws IOException {
        if (!generation.flat()) {
            out.packArrayHeader(groups.size());
            for (var group : groups) {
                ints(out, group);
            }
        } else if (groups.size() > 1) {
            throw new IllegalArgumentException(
                    generation + " has one list of blocks per request, not " + groups.size());
        } else {
            ints(out, groups.isEmpty() ? new int[0] : groups.getFirst());
        }
    }

    private static void regions(MessageBufferPacker out, XferMetadata message) throws IOException {
        var regions = message.regions();
        longs(out, "kv_caches_base_addr", regions.baseAddresses());
        var generation = message.generation();
        if (generation != Generation.G2) {
            longs(out, "block_lens", regions.blockLengths());
        }
        if (generation.tellsStrides()) {
            longs(out, "kv_block_lens", regions.kvBlockLengths());
        }
        if (generation.namesLayers()) {
            strings(out, "registered_layer_names", regions.layerNames());
            optionalInts(out, "registered_layer_indices", regions.layerIndices());
        }
        if (generation.tellsStrides()) {
            optionalInts(out, "registered_group_indices", regions.groups());
        }
        if (generation != Generation.G7) {
            return;
        }
        if (!regions.sharedGroups().isEmpty()) {
            out.packString("registered_shared_group_ids");
            out.packArrayHeader(regions.sharedGroups().size());
            for (var groups : regions.sharedGroups()) {
                ints(out, groups);
            }
        }
        if (regions.rowOffsets().length > 0) {
            out.packString("registered_row_offsets");
            out.packArrayHeader(regions.rowOffsets().length);
            for (long offset : regions.rowOffsets()) {
                out.packLong(offset);
            }
        }
    }

    private static void extension(MessageBufferPacker out, PeerExtension extension)
            throws IOException {
        string(out, "kvferry_namespace", extension.namespace());
        string(out, "kvferry_layout", extension.layout());
        string(out, "kvferry_incarnation", extension.incarnation());
        number(out, "kvferry_write_within_ms", extension.writeWithinMillis());
        out.packString("kvferry_grants");
        out.packMapHeader(extension.grants().size());
        for (var grant : extension.grants().entrySet()) {
            out.packString(grant.getKey());
            unsigned(out, grant.getValue());
        }
        if (!extension.reader().isEmpty()) {
            string(out, "kvferry_reader", extension.reader());
        }
        if (!extension.worker().isEmpty()) {
            string(out, "kvferry_worker", extension.worker());
        }
    }

    private static void string(MessageBufferPacker out, String key, String value)
            throws IOException {
        out.packString(key);
        out.packString(value);
    }

    private static void number(MessageBufferPacker out, String key, long value) throws IOException {
        out.packString(key);
        out.packLong(value);
    }

    private static void unsigned(MessageBufferPacker out, long value) throws IOException {
        if (value >= 0) {
            out.packLong(value);
        } else {
            out.packBigInteger(BigInteger.valueOf(value).add(TWO_64));
        }
    }

    private static void longs(MessageBufferPacker out, String key, long[] values)
            throws IOException {
        out.packString(key);
        out.packArrayHeader(values.length);
        for (long value : values) {
            unsigned(out, value);
        }
    }

    private static void strings(MessageBufferPacker out, String key, List<String> values)
            throws IOException {
        if (values.isEmpty()) {
            return;
        }
        out.packString(key);
        out.packArrayHeader(values.size());
        for (var value : values) {
            out.packString(value);
        }
    }

    private static void optionalInts(MessageBufferPacker out, String key, int[] values)
            throws IOException {
        if (values.length > 0) {
            out.packString(key);
            ints(out, values);
        }
    }

    private static void ints(MessageBufferPacker out, int[] values) throws IOException {
        out.packArrayHeader(values.length);
        for (int value : values) {
            out.packInt(value);
        }
    }
}
