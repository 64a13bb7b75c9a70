// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.metadata;

import io.kvferry.backend.mooncake.te.RemoteSegment.Buffer;
import io.kvferry.backend.mooncake.te.internal.WireJson;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

import java.math.BigInteger;
import java.time.LocalDateTime;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.List;

/// The document that a node publishes about itself. Native nodes ignore the member `kvferry`; an
/// absent one means a native peer.
///
/// @param name resolves to the host of the data server
/// @param dataPort of the TCP data plane; 0 for a peer that has none
/// @param dataVersion of the TCP data protocol; 1 when the document does not say
public record SegmentDocument(
        String name,
        String protocol,
        int dataPort,
        int dataVersion,
        List<Buffer> buffers,
        Extension extension) {
    /// The part of it for kvferry peers.
    ///
    /// @param version of the extension; 0: the peer is none of ours
    /// @param incarnation 32 hex digits, drawn at start
    /// @param shared whether it has a shared control page
    public record Extension(int version, String incarnation, boolean shared) {
        public static final int VERSION = 3;
        public static final Extension NONE = new Extension(0, "", false);

        public boolean usable() {
            return version == VERSION;
        }
    }

    /// Mooncake's format, in local time; informational.
    private static final DateTimeFormatter STAMP =
            DateTimeFormatter.ofPattern("yyyy-MM-dd HH:mm:ss.SSSSSS");

    private static final String WHAT = "segment document";

    /// Members in alphabetical order and exact types, as JsonCpp writes them. Buffers that would
    /// exceed `mostBytes` are omitted: TCP peers do not use them, since the serving side checks
    /// addresses.
    public byte[] encode(LocalDateTime now, int mostBytes) {
        // The longest possible buffer entry: two 20-digit numbers, the name, and the punctuation
        // around them.
        int perBuffer = 75 + name.length();
        int room = Math.max(0, (mostBytes - 512 - name.length()) / perBuffer);
        return WireJson.bytes(toJson(now, Math.min(room, buffers.size())));
    }

    private ObjectNode toJson(LocalDateTime now, int shown) {
        ObjectNode json = WireJson.object();
        ArrayNode list = json.putArray("buffers");
        for (Buffer buffer : buffers.subList(0, shown)) {
            list.addObject()
                    .put("addr", unsigned(buffer.address()))
                    .put("length", unsigned(buffer.bytes()))
                    .put("name", name);
        }
        if (extension.version() > 0) {
            json.putObject("kvferry")
                    .put("incarnation", extension.incarnation())
                    .put("shared", extension.shared())
                    .put("version", extension.version());
        }
        json.put("name", name).put("protocol", protocol).put("tcp_data_port", dataPort);
        if (dataVersion > 1) {
            json.put("tcp_proto_version", dataVersion);
        }
        return json.put("timestamp", STAMP.format(now));
    }

    private static BigInteger unsigned(long bits) {
        return new BigInteger(Long.toUnsignedString(bits));
    }

    public static SegmentDocument decode(String text) {
        JsonNode json = WireJson.objectOf(WireJson.parse(text, WHAT), WHAT);
        List<Buffer> buffers = new ArrayList<>();
        if (json.has("buffers")) {
            if (!json.path("buffers").isArray()) {
                throw new KvFerryException(ErrorCode.PROTOCOL, WHAT + ".buffers is not a list");
            }
            for (JsonNode buffer : json.path("buffers")) {
                long address = WireJson.u64(buffer, "addr", WHAT + ".buffers");
                long length = WireJson.u64(buffer, "length", WHAT + ".buffers");
                if (address == 0
                        || length == 0
                        || WireJson.text(buffer, "name", WHAT + ".buffers").isEmpty()) {
                    throw new KvFerryException(
                            ErrorCode.PROTOCOL,
                            WHAT + " has a buffer without address, length or name");
                }
                buffers.add(new Buffer(address, length));
            }
        }
        return new SegmentDocument(
                WireJson.text(json, "name", WHAT),
                WireJson.text(json, "protocol", WHAT),
                json.has("tcp_data_port")
                        ? WireJson.smallInt(json, "tcp_data_port", 0, 65_535, WHAT)
                        : 0,
                json.has("tcp_proto_version")
                        ? WireJson.smallInt(json, "tcp_proto_version", 1, Integer.MAX_VALUE, WHAT)
                        : 1,
                List.copyOf(buffers),
                json.has("kvferry") ? extensionOf(json.path("kvferry")) : Extension.NONE);
    }

    private static Extension extensionOf(JsonNode json) {
        String what = WHAT + ".kvferry";
        int version = WireJson.smallInt(json, "version", 1, Integer.MAX_VALUE, what);
        if (version != Extension.VERSION) {
            return Extension.NONE;
        }
        String incarnation = WireJson.text(json, "incarnation", what);
        if (!incarnation.matches("[0-9a-f]{32}") || !json.path("shared").isBoolean()) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL, what + " has a malformed incarnation or flag");
        }
        return new Extension(version, incarnation, json.path("shared").booleanValue());
    }
}
