// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.nio.ByteBuffer;
import java.util.Arrays;

/// A message on a connection that exchanges share: `u64 exchange | u8 kind | payload`, big-endian.
/// The side that asks draws the numbers, each once for a connection.
///
/// @param kind [#REQUEST] opens an exchange; [#ANSWER] and [#LAST] answer it, the latter for the
///   last time; [#REFUSED] ends one that was not taken up; with [#CANCEL] whoever asked ends it
record ExchangeFrame(long exchange, int kind, byte[] payload) {
    static final int REQUEST = 1;
    static final int ANSWER = 2;
    static final int LAST = 3;
    static final int REFUSED = 4;
    static final int CANCEL = 5;

    static final int HEADER_BYTES = Long.BYTES + 1;

    static byte[] encode(long exchange, int kind, byte[] payload) {
        return ByteBuffer.allocate(HEADER_BYTES + payload.length)
                .putLong(exchange)
                .put((byte) kind)
                .put(payload)
                .array();
    }

    static byte[] encode(long exchange, int kind) {
        return encode(exchange, kind, new byte[0]);
    }

    /// @throws KvFerryException [ErrorCode#PROTOCOL] for what is no frame
    static ExchangeFrame decode(byte[] message) {
        if (message.length < HEADER_BYTES) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL, "a frame of " + message.length + " bytes of an exchange");
        }
        return new ExchangeFrame(
                ByteBuffer.wrap(message).getLong(),
                message[Long.BYTES],
                Arrays.copyOfRange(message, HEADER_BYTES, message.length));
    }

    /// What its receiver throws where it must not come.
    KvFerryException unexpected() {
        return new KvFerryException(
                ErrorCode.PROTOCOL, "an unexpected frame of kind " + kind + " of an exchange");
    }
}
