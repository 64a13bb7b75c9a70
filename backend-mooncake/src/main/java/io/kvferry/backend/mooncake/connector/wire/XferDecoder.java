// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.connector.wire;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.util.ArrayList;
import java.util.EnumSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/// Reads the side channel's messages: every generation of the request, the response, keys in any
/// order, unknown keys ignored, types strict. Every fault of the bytes is [ErrorCode#PROTOCOL].
public final class XferDecoder {
    private XferDecoder() {}

    /// Reads a request of any generation; see [Generation#served].
    public static XferMetadata request(byte[] message) {
        var fields = new RequestFields(new Msgpack(message));
        fields.in.fields(fields::read);
        try {
            return fields.build();
        } catch (IllegalArgumentException e) {
            throw new KvFerryException(ErrorCode.PROTOCOL, String.valueOf(e.getMessage()), e);
        }
    }

    /// Reads a response.
    public static XferResponse response(byte[] message) {
        var fields = new ResponseFields(new Msgpack(message));
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
        BLOCK_IDS,
        KVFERRY_NAMESPACE,
        KVFERRY_LAYOUT,
        KVFERRY_INCARNATION,
        KVFERRY_WRITE_WITHIN_MS,
        KVFERRY_GRANTS;

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

    private static final class RequestFields {
        private final Msgpack in;
        private final Set<Field> present = EnumSet.noneOf(Field.class);
        private final Map<String, RequestBlocks> reqBlocks = new LinkedHashMap<>();
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
        private List<String> requestIds = List.of();
        private List<int[]> blockIds = List.of();
        private String namespace = "";
        private String layout = "";
        private String incarnation = "";
        private long writeWithinMillis;
        private Map<String, Long> grants = Map.of();

        RequestFields(Msgpack in) {
            this.in = in;
        }

        boolean read(String key) {
            var field = Field.BY_KEY.get(key);
            if (field == null) {
                return false;
            }
            present.add(field);
            switch (field) {
                case REMOTE_HOSTNAME -> hostname = in.string();
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
                case REQUEST_IDS -> requestIds = in.strings();
                case BLOCK_IDS -> blockIds = in.intLists();
                case KVFERRY_NAMESPACE -> namespace = in.string();
                case KVFERRY_LAYOUT -> layout = in.string();
                case KVFERRY_INCARNATION -> incarnation = in.string();
                case KVFERRY_WRITE_WITHIN_MS -> writeWithinMillis = in.int64();
                case KVFERRY_GRANTS -> grants = readGrants();
            }
            return true;
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
            if (count > 0 && in.nextIsInteger()) { // G2 and G3: one flat list
                var ids = new int[count];
                for (int i = 0; i < count; i++) {
                    ids[i] = blockId();
                }
                return List.of(ids);
            }
            var lists = new ArrayList<int[]>(count);
            for (int i = 0; i < count; i++) {
                var ids = new int[in.arrayCount()];
                for (int j = 0; j < ids.length; j++) {
                    ids[j] = blockId();
                }
                lists.add(ids);
            }
            return lists;
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
            require(Field.REMOTE_HOSTNAME, Field.REMOTE_PORT, Field.KV_CACHES_BASE_ADDR);
            if (generation == Generation.G1) {
                require(Field.REQUEST_IDS, Field.BLOCK_IDS);
                fillFromG1();
            } else {
                require(Field.REMOTE_TP_SIZE, Field.REMOTE_TP_RANK, Field.REQ_BLOCKS);
            }
            var regions =
                    new WireRegions(
                            base,
                            blockLens,
                            kvBlockLens,
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
                                            grants))
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

        private void fillFromG1() {
            if (requestIds.size() != blockIds.size()) {
                throw in.malformed(
                        requestIds.size() + " request_ids, " + blockIds.size() + " block_ids");
            }
            for (int i = 0; i < requestIds.size(); i++) {
                reqBlocks.put(
                        requestIds.get(i),
                        new RequestBlocks(requestIds.get(i), List.of(blockIds.get(i))));
            }
        }

        private Generation generation() {
            if (present.contains(Field.REQUEST_IDS)) {
                return Generation.G1;
            }
            if (!present.contains(Field.KV_BLOCK_LENS)) {
                if (present.contains(Field.REGISTERED_LAYER_NAMES)) {
                    return Generation.G4;
                }
                return present.contains(Field.BLOCK_LENS) ? Generation.G3 : Generation.G2;
            }
            require(Field.BLOCK_LENS);
            if (present.contains(Field.LAYOUT_ID)
                    || present.contains(Field.REGISTERED_SHARED_GROUP_IDS)
                    || present.contains(Field.REGISTERED_ROW_OFFSETS)) {
                return Generation.G7;
            }
            return present.contains(Field.REMOTE_PP_SIZE) ? Generation.G6 : Generation.G5;
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
        private final Msgpack in;
        private Optional<XferResponse.Status> status = Optional.empty();
        private List<String> okReqs = List.of();
        private List<String> errReqs = List.of();
        private String errMsg = "";
        private long layoutId;

        ResponseFields(Msgpack in) {
            this.in = in;
        }

        boolean read(String key) {
            switch (key) {
                case "status" -> status = Optional.of(readStatus());
                case "ok_reqs" -> okReqs = readIds();
                case "err_reqs" -> errReqs = readIds();
                case "err_msg" -> errMsg = readText();
                case "layout_id" -> layoutId = in.int64();
                default -> {
                    return false;
                }
            }
            return true;
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
            return new XferResponse(known, okReqs, errReqs, errMsg, layoutId);
        }
    }
}
