// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.wire;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.msgpack.MsgpackFields;

import java.util.ArrayList;
import java.util.EnumSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/// Reads the side channel's messages: every [Generation] of the request, the response, keys in any
/// order, unknown keys ignored, types strict. Every fault of the bytes is [ErrorCode#PROTOCOL].
public final class XferDecoder {
    /// Requests, blocks of a group, regions: more than any decoder has.
    private static final int MOST_ITEMS = 1 << 17;

    /// Lists of block ids in a message. One of a byte becomes an array of 16 bytes and more.
    private static final int MOST_LISTS = 1 << 18;

    /// Characters of what is kept as a name: a host has 253 at most.
    private static final int LONGEST_NAME = 1024;

    private static final int[] NO_BLOCKS = {};

    private XferDecoder() {}

    /// Reads a request of any generation.
    public static XferMetadata request(byte[] message) {
        var fields = new RequestFields(new MsgpackFields(message, MOST_ITEMS));
        fields.in.fields(fields::read);
        try {
            return fields.build();
        } catch (IllegalArgumentException e) {
            throw new KvFerryException(ErrorCode.PROTOCOL, String.valueOf(e.getMessage()), e);
        }
    }

    /// Reads a response.
    public static XferResponse response(byte[] message) {
        var fields = new ResponseFields(new MsgpackFields(message));
        fields.in.fields(fields::read);
        return fields.build();
    }

    private enum Field {
        REMOTE_HOSTNAME,
        REMOTE_PORT,
        REMOTE_TP_SIZE,
        REMOTE_TP_RANK,
        REQ_BLOCKS,
        KV_CACHES_BASE_ADDR,
        BLOCK_LENS,
        KV_BLOCK_LENS,
        REGISTERED_LAYER_NAMES,
        REGISTERED_LAYER_INDICES,
        REGISTERED_GROUP_INDICES,
        REGISTERED_SHARED_GROUP_IDS,
        REGISTERED_ROW_OFFSETS,
        REMOTE_PP_SIZE,
        LAYOUT_ID,
        REQUEST_IDS,
        KVFERRY_NAMESPACE,
        KVFERRY_LAYOUT,
        KVFERRY_INCARNATION,
        KVFERRY_WRITE_WITHIN_MS,
        KVFERRY_GRANTS,
        KVFERRY_READER,
        KVFERRY_WORKER;

        private static final Map<String, Field> BY_KEY = new LinkedHashMap<>();

        static {
            for (var field : values()) {
                BY_KEY.put(field.key(), field);
            }
        }

        String key() {
            return name().toLowerCase(Locale.ROOT);
        }
    }

    private static final Set<Field> SINCE_G7 =
            EnumSet.of(
                    Field.LAYOUT_ID,
                    Field.REGISTERED_SHARED_GROUP_IDS,
                    Field.REGISTERED_ROW_OFFSETS);

    private static final Set<Field> SINCE_G5 = EnumSet.copyOf(SINCE_G7);

    static {
        SINCE_G5.addAll(
                EnumSet.of(
                        Field.KV_BLOCK_LENS, Field.REGISTERED_GROUP_INDICES, Field.REMOTE_PP_SIZE));
    }

    private static final class RequestFields {
        private final MsgpackFields in;
        private final Set<Field> present = EnumSet.noneOf(Field.class);
        private final Map<String, RequestBlocks> reqBlocks = new LinkedHashMap<>();
        private int lists;
        private boolean flat;
        private boolean nested;
        private String hostname = "";
        private int port;
        private int tpSize = 1;
        private int tpRank;
        private long[] base = {};
        private long[] blockLens = {};
        private long[] kvBlockLens = {};
        private List<String> layerNames = List.of();
        private int[] layerIndices = {};
        private int[] groups = {};
        private List<int[]> sharedGroups = List.of();
        private long[] rowOffsets = {};
        private int ppSize = 1;
        private long layoutId;
        private String namespace = "";
        private String layout = "";
        private String incarnation = "";
        private long writeWithinMillis;
        private Map<String, Long> grants = Map.of();
        private String reader = "";
        private String worker = "";

        RequestFields(MsgpackFields in) {
            this.in = in;
        }

        boolean read(String key) {
            var field = Field.BY_KEY.get(key);
            if (field == null) {
                return false;
            }
            present.add(field);
            switch (field) {
                case REMOTE_HOSTNAME -> hostname = name();
                case REMOTE_PORT -> port = in.int32();
                case REMOTE_TP_SIZE -> tpSize = in.int32();
                case REMOTE_TP_RANK -> tpRank = in.int32();
                case REQ_BLOCKS -> readReqBlocks();
                case KV_CACHES_BASE_ADDR -> base = in.longs();
                case BLOCK_LENS -> blockLens = in.longs();
                case KV_BLOCK_LENS -> kvBlockLens = in.longs();
                case REGISTERED_LAYER_NAMES -> layerNames = in.strings();
                case REGISTERED_LAYER_INDICES -> layerIndices = in.ints();
                case REGISTERED_GROUP_INDICES -> groups = in.ints();
                case REGISTERED_SHARED_GROUP_IDS -> sharedGroups = in.intLists();
                case REGISTERED_ROW_OFFSETS -> rowOffsets = in.longs();
                case REMOTE_PP_SIZE -> ppSize = in.int32();
                case LAYOUT_ID -> layoutId = in.int64();
                case REQUEST_IDS -> throw in.malformed("messages of G1 are not spoken");
                case KVFERRY_NAMESPACE -> namespace = name();
                case KVFERRY_LAYOUT -> layout = name();
                case KVFERRY_INCARNATION -> incarnation = name();
                case KVFERRY_WRITE_WITHIN_MS -> writeWithinMillis = in.int64();
                case KVFERRY_GRANTS -> grants = readGrants();
                case KVFERRY_READER -> reader = name();
                case KVFERRY_WORKER -> worker = name();
            }
            return true;
        }

        private String name() {
            var name = in.string();
            if (name.length() > LONGEST_NAME) {
                throw in.malformed("longer than " + LONGEST_NAME + " characters");
            }
            return name;
        }

        private void readReqBlocks() {
            for (int n = in.mapCount(); n > 0; n--) {
                var request = in.string();
                in.arrayOf(2);
                if (reqBlocks.put(request, new RequestBlocks(in.string(), readGroups())) != null) {
                    throw in.malformed("the same request twice");
                }
            }
        }

        private List<int[]> readGroups() {
            int count = in.arrayCount();
            if (count == 0) {
                return List.of();
            }
            if (in.nextIsInteger()) {
                flat = true;
                return List.of(blockIds(count));
            }
            nested = true;
            lists += count;
            if (lists > MOST_LISTS) {
                throw in.malformed("more than " + MOST_LISTS + " lists of blocks");
            }
            var groups = new ArrayList<int[]>(count);
            for (int i = 0; i < count; i++) {
                groups.add(blockIds(in.arrayCount()));
            }
            return groups;
        }

        private int[] blockIds(int count) {
            if (count == 0) {
                return NO_BLOCKS;
            }
            var ids = new int[count];
            for (int i = 0; i < count; i++) {
                ids[i] = blockId();
            }
            return ids;
        }

        private int blockId() {
            int id = in.int32();
            if (id < 0) {
                throw in.malformed("negative block id " + id);
            }
            return id;
        }

        private Map<String, Long> readGrants() {
            var tokens = new LinkedHashMap<String, Long>();
            for (int n = in.mapCount(); n > 0; n--) {
                tokens.put(in.string(), in.int64());
            }
            return tokens;
        }

        XferMetadata build() {
            var generation = generation();
            require(
                    Field.REMOTE_HOSTNAME,
                    Field.REMOTE_PORT,
                    Field.REMOTE_TP_SIZE,
                    Field.REMOTE_TP_RANK,
                    Field.REQ_BLOCKS,
                    Field.KV_CACHES_BASE_ADDR);
            if (flat && (nested || !generation.flat())) {
                throw new KvFerryException(
                        ErrorCode.PROTOCOL, "Expected `array`, got `int` - at `req_blocks`");
            }
            if (nested && generation.flat()) {
                throw new KvFerryException(
                        ErrorCode.PROTOCOL, "Expected `int`, got `array` - at `req_blocks`");
            }
            var regions =
                    new WireRegions(
                            base,
                            blockLens,
                            generation.tellsStrides() ? kvBlockLens : blockLens,
                            layerNames,
                            layerIndices,
                            groups,
                            sharedGroups,
                            rowOffsets);
            Optional<PeerExtension> extension =
                    present.contains(Field.KVFERRY_GRANTS)
                            ? Optional.of(
                                    new PeerExtension(
                                            namespace,
                                            layout,
                                            incarnation,
                                            writeWithinMillis,
                                            grants,
                                            reader,
                                            worker))
                            : Optional.empty();
            return new XferMetadata(
                    generation,
                    hostname,
                    port,
                    tpSize,
                    tpRank,
                    reqBlocks,
                    regions,
                    ppSize,
                    layoutId,
                    extension);
        }

        private Generation generation() {
            if (present.stream().anyMatch(SINCE_G5::contains)) {
                require(Field.KV_BLOCK_LENS, Field.BLOCK_LENS);
                if (present.stream().anyMatch(SINCE_G7::contains)) {
                    return Generation.G7;
                }
                return present.contains(Field.REMOTE_PP_SIZE) ? Generation.G6 : Generation.G5;
            }
            if (present.contains(Field.REGISTERED_LAYER_NAMES)
                    || present.contains(Field.REGISTERED_LAYER_INDICES)) {
                require(Field.BLOCK_LENS);
                return Generation.G4;
            }
            if (!present.contains(Field.BLOCK_LENS)) {
                return Generation.G2;
            }
            return nested ? Generation.G3B : Generation.G3;
        }

        private void require(Field... fields) {
            for (var field : fields) {
                if (!present.contains(field)) {
                    throw new KvFerryException(
                            ErrorCode.PROTOCOL,
                            "Object missing required field `" + field.key() + "`");
                }
            }
        }
    }

    private static final class ResponseFields {
        private final MsgpackFields in;
        private Optional<XferResponse.Status> status = Optional.empty();
        private List<String> okReqs = List.of();
        private List<String> errReqs = List.of();
        private String errMsg = "";
        private long layoutId;
        private final Map<String, byte[]> offers = new LinkedHashMap<>();

        ResponseFields(MsgpackFields in) {
            this.in = in;
        }

        boolean read(String key) {
            switch (key) {
                case "status" -> status = Optional.of(readStatus());
                case "ok_reqs" -> okReqs = readIds();
                case "err_reqs" -> errReqs = readIds();
                case "err_msg" -> errMsg = readText();
                case "layout_id" -> layoutId = in.int64();
                case "kvferry_offers" -> readOffers();
                default -> {
                    return false;
                }
            }
            return true;
        }

        private void readOffers() {
            for (int n = in.mapCount(); n > 0; n--) {
                offers.put(in.string(), in.binary());
            }
        }

        private XferResponse.Status readStatus() {
            int wire = in.int32();
            for (var candidate : XferResponse.Status.values()) {
                if (candidate.wire() == wire) {
                    return candidate;
                }
            }
            throw in.malformed("Invalid enum value " + wire);
        }

        private List<String> readIds() {
            if (in.nextIsNil()) {
                in.nil();
                return List.of();
            }
            return in.strings();
        }

        private String readText() {
            if (in.nextIsNil()) {
                in.nil();
                return "";
            }
            return in.string();
        }

        XferResponse build() {
            var known =
                    status.orElseThrow(() ->
                            new KvFerryException(
                                    ErrorCode.PROTOCOL, "Object missing required field `status`"));
            return new XferResponse(known, okReqs, errReqs, errMsg, layoutId, offers);
        }
    }
}
