// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.wire;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.msgpack.MsgpackFields;
import io.kvferry.toolkit.msgpack.MsgpackSetup;

import org.jspecify.annotations.Nullable;
import org.msgpack.core.MessagePack;
import org.msgpack.core.MessagePacker;

import java.io.IOException;
import java.util.Arrays;

/// The messages of protocol 0: vLLM's P2pNcclEngine, byte for byte.
public sealed interface VllmMessage {
    /// Bytes of an NCCL unique id.
    int UNIQUE_ID_BYTES = 128;

    /// Type of a [Goodbye], where a [Ping] has its role.
    String GOODBYE = "BYE";

    /// Answer to a PUT: go on.
    byte[] PUT_GO = {'0'};

    /// Answer to a PUT: out of memory.
    byte[] PUT_NO_MEMORY = {'1'};

    /// Makes a communicator of two, of which the sender is rank 0. No answer.
    record New(byte[] uniqueId) implements VllmMessage {
        public New {
            if (uniqueId.length != UNIQUE_ID_BYTES) {
                throw new KvFerryException(
                        ErrorCode.PROTOCOL,
                        "unique_id of " + uniqueId.length + " bytes, not " + UNIQUE_ID_BYTES);
            }
        }
    }

    /// A tensor follows over NCCL once this was answered by [#PUT_GO].
    ///
    /// @param tensorId `request#layer`
    /// @param dtype without `torch.`
    record Put(String tensorId, long[] shape, String dtype) implements VllmMessage {}

    /// Asks for a tensor. Answered by [Found] or [Missing].
    record Get(String tensorId) implements VllmMessage {}

    /// The tensor that was asked for follows over NCCL.
    record Found(long[] shape, String dtype) implements VllmMessage {}

    /// No such tensor.
    record Missing() implements VllmMessage {}

    /// Registration at the proxy, every 3 s.
    ///
    /// @param type `P` or `D`
    record Ping(String type, String httpAddress, String zmqAddress) implements VllmMessage {}

    /// The engine ends: kvferry's own addition. Answered by kvferry's router with a byte; vLLM's
    /// proxy logs and ignores it.
    record Goodbye(String httpAddress, String zmqAddress) implements VllmMessage {}

    default byte[] encode() {
        MsgpackSetup.apply();
        try (var out = MessagePack.newDefaultBufferPacker()) {
            switch (this) {
                case New(var id) -> {
                    out.packMapHeader(2).packString("cmd").packString("NEW");
                    out.packString("unique_id").packBinaryHeader(id.length).writePayload(id);
                }
                case Put(var tensorId, var shape, var dtype) -> {
                    out.packMapHeader(4).packString("cmd").packString("PUT");
                    out.packString("tensor_id").packString(tensorId);
                    pack(out, shape, dtype);
                }
                case Get(var tensorId) -> {
                    out.packMapHeader(2).packString("cmd").packString("GET");
                    out.packString("tensor_id").packString(tensorId);
                }
                case Found(var shape, var dtype) -> {
                    out.packMapHeader(3).packString("ret").packInt(0);
                    pack(out, shape, dtype);
                }
                case Missing() -> out.packMapHeader(1).packString("ret").packInt(1);
                case Ping(var type, var http, var zmq) -> pack(out, type, http, zmq);
                case Goodbye(var http, var zmq) -> pack(out, GOODBYE, http, zmq);
            }
            return out.toByteArray();
        } catch (IOException e) {
            throw new AssertionError("a buffer in memory does not fail", e);
        }
    }

    private static void pack(MessagePacker out, String type, String http, String zmq)
            throws IOException {
        out.packMapHeader(3).packString("type").packString(type);
        out.packString("http_address").packString(http);
        out.packString("zmq_address").packString(zmq);
    }

    private static void pack(MessagePacker out, long[] shape, String dtype) throws IOException {
        out.packString("shape").packArrayHeader(shape.length);
        for (long size : shape) {
            out.packLong(size);
        }
        out.packString("dtype").packString(dtype);
    }

    /// Reads a message strictly: no coercion, no field twice, nothing behind it; fields that are
    /// not known are skipped.
    ///
    /// @throws KvFerryException [ErrorCode#PROTOCOL]
    static VllmMessage decode(byte[] frame) {
        var in = new MsgpackFields(frame);
        var seen = new Seen();
        in.fields(key -> {
            switch (key) {
                case "cmd" -> seen.command = in.string();
                case "unique_id" -> seen.uniqueId = in.binary();
                case "tensor_id" -> seen.tensorId = in.string();
                case "shape" -> seen.shape = in.longs();
                case "dtype" -> seen.dtype = in.string();
                case "ret" -> seen.ret = in.int64();
                case "type" -> seen.type = in.string();
                case "http_address" -> seen.http = in.string();
                case "zmq_address" -> seen.zmq = in.string();
                default -> {
                    return false;
                }
            }
            return true;
        });
        return seen.message();
    }

    /// The fields of a message while it is read.
    final class Seen {
        private @Nullable String command;
        private byte @Nullable [] uniqueId;
        private @Nullable String tensorId;
        private long @Nullable [] shape;
        private @Nullable String dtype;
        private @Nullable Long ret;
        private @Nullable String type;
        private @Nullable String http;
        private @Nullable String zmq;

        private VllmMessage message() {
            var cmd = command;
            if (cmd == null && type != null) {
                var role = need("type", type);
                if (role.equals(GOODBYE)) {
                    return new Goodbye(need("http_address", http), need("zmq_address", zmq));
                }
                if (!role.equals("P") && !role.equals("D")) {
                    throw new KvFerryException(ErrorCode.PROTOCOL, "ping of type " + role);
                }
                return new Ping(role, need("http_address", http), need("zmq_address", zmq));
            }
            if (cmd == null) {
                long code = need("cmd or ret", ret);
                return code == 0
                        ? new Found(checked(need("shape", shape)), need("dtype", dtype))
                        : new Missing();
            }
            return switch (cmd) {
                case "NEW" -> new New(need("unique_id", uniqueId));
                case "PUT" ->
                        new Put(
                                need("tensor_id", tensorId),
                                checked(need("shape", shape)),
                                need("dtype", dtype));
                case "GET" -> new Get(need("tensor_id", tensorId));
                default -> throw new KvFerryException(ErrorCode.PROTOCOL, "unknown cmd " + cmd);
            };
        }

        private static long[] checked(long[] shape) {
            long product = 1;
            for (long size : shape) {
                if (size < 0 || (size > 0 && product > Long.MAX_VALUE / size)) {
                    throw new KvFerryException(
                            ErrorCode.PROTOCOL, "impossible shape " + Arrays.toString(shape));
                }
                product *= Math.max(1, size);
            }
            return shape;
        }

        private static <T> T need(String field, @Nullable T value) {
            if (value == null) {
                throw new KvFerryException(ErrorCode.PROTOCOL, "field " + field + " is missing");
            }
            return value;
        }
    }
}
