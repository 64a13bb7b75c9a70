// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.recovery;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

/// What a step changes about a connector's worker halves, on every rank and before anything else.
///
/// @param incarnation of the engine, for the halves that are opened
public record ConnectorChange(Kind kind, long incarnation) {
    /// As it was.
    public static final ConnectorChange NONE = new ConnectorChange(Kind.NONE, 0);

    /// The half is closed, also one that was opened and is not in use yet.
    public static final ConnectorChange CLOSE = new ConnectorChange(Kind.CLOSE, 0);

    /// What was opened is in use from this step on.
    public static final ConnectorChange USE = new ConnectorChange(Kind.USE, 0);

    /// The kinds; their order is part of the byte form.
    public enum Kind {
        NONE,
        CLOSE,
        /// A new half is opened in a thread of its own, while steps go on without it. The result of
        /// one of the next steps says how that went.
        OPEN,
        USE
    }

    public static ConnectorChange open(long incarnation) {
        return new ConnectorChange(Kind.OPEN, incarnation);
    }

    public void write(WireWriter out) {
        out.u8(kind.ordinal()).i64(incarnation);
    }

    /// @throws KvFerryException PROTOCOL on what is no change
    public static ConnectorChange read(WireReader in) {
        int kind = in.u8();
        var kinds = Kind.values();
        if (kind >= kinds.length) {
            throw new KvFerryException(ErrorCode.PROTOCOL, "connector change " + kind);
        }
        return new ConnectorChange(kinds[kind], in.i64());
    }
}
