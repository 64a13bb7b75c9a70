// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.wire;

import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.msgpack.MsgpackFields;

import org.msgpack.core.MessagePack;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Optional;

/// The report of a kvferry decoder about blocks that it was offered to read. The prefiller answers
/// whether it held them until now: only then the decoder may use what it read.
///
/// @param ticket of the offer
/// @param error why they were not read; empty when they were
public record ReadReport(long ticket, String error) {
    private static final int MOST_TEXT = 500;

    /// A map of two, whose first key no request has.
    private static final byte[] START = start();

    public ReadReport {
        if (error.length() > MOST_TEXT) {
            error = error.substring(0, MOST_TEXT);
        }
    }

    private static byte[] start() {
        var key = "kvferry_ticket".getBytes(StandardCharsets.US_ASCII);
        var start = new byte[2 + key.length];
        start[0] = (byte) 0x82;
        start[1] = (byte) (0xa0 + key.length);
        System.arraycopy(key, 0, start, 2, key.length);
        return start;
    }

    public byte[] encode() {
        try (var out = MessagePack.newDefaultBufferPacker()) {
            out.packMapHeader(2);
            out.packString("kvferry_ticket");
            out.packLong(ticket);
            out.packString("kvferry_error");
            out.packString(error);
            return out.toByteArray();
        } catch (IOException e) {
            throw new UncheckedIOException("packing into memory does not fail", e);
        }
    }

    /// Reads a report; empty for a message of another kind.
    ///
    /// @throws KvFerryException [ErrorCode#PROTOCOL]
    public static Optional<ReadReport> decode(byte[] message) {
        if (message.length < START.length
                || Arrays.mismatch(message, 0, START.length, START, 0, START.length) >= 0) {
            return Optional.empty();
        }
        var fields = new Fields(new MsgpackFields(message));
        fields.in.fields(fields::read);
        return Optional.of(new ReadReport(fields.ticket, fields.error));
    }

    private static final class Fields {
        private final MsgpackFields in;
        private long ticket;
        private String error = "";

        Fields(MsgpackFields in) {
            this.in = in;
        }

        boolean read(String key) {
            switch (key) {
                case "kvferry_ticket" -> ticket = in.int64();
                case "kvferry_error" -> error = in.string();
                default -> {
                    return false;
                }
            }
            return true;
        }
    }
}
