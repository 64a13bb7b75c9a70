// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.wire;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.util.Arrays;
import java.util.HexFormat;
import java.util.Objects;

/// Opaque bytes that one half of a connector hands to the other through the engine, with the
/// version of their form.
///
/// The engine ships them unread, also within one process, so that the halves can always be split.
/// The array is neither copied nor changed after construction: whoever makes a payload gives the
/// array away.
public record Payload(int version, byte[] bytes) {
    /// The empty payload. Costs nothing to send; connectors answer it on idle steps.
    public static final Payload EMPTY = new Payload(0, new byte[0]);

    public Payload {
        Objects.requireNonNull(bytes, "bytes");
        if (version < 0 || version > 0xffff) {
            throw new IllegalArgumentException("payload version out of 0..65535: " + version);
        }
    }

    public boolean isEmpty() {
        return bytes.length == 0;
    }

    /// A strict reader over the bytes.
    public WireReader reader() {
        return new WireReader(bytes);
    }

    /// A strict reader over bytes of a form that this half knows.
    ///
    /// @param what the payload is, for the message
    /// @param known the version that this half reads
    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] when the bytes are of another version
    public WireReader reader(String what, int known) {
        if (version != known) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "%s of version %d, this half reads version %d; run the same release on all ranks"
                            .formatted(what, version, known));
        }
        return reader();
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Payload(int otherVersion, byte[] otherBytes)
                && version == otherVersion
                && Arrays.equals(bytes, otherBytes);
    }

    @Override
    public int hashCode() {
        return 31 * version + Arrays.hashCode(bytes);
    }

    @Override
    public String toString() {
        var head = HexFormat.of().formatHex(bytes, 0, Math.min(16, bytes.length));
        return "Payload[v"
                + version
                + ", "
                + bytes.length
                + " B "
                + head
                + (bytes.length > 16 ? ".." : "")
                + "]";
    }
}
