// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

/// What the worker halves of one rank tell their scheduler halves before the first request; EMPTY
/// from a half with nothing to tell.
public record Handshakes(Payload kv, Payload ec) {
    public void write(WireWriter out) {
        out.i32(kv.version()).bytes(kv.bytes()).i32(ec.version()).bytes(ec.bytes());
    }

    public static Handshakes read(WireReader in) {
        return new Handshakes(payload(in), payload(in));
    }

    static Payload payload(WireReader in) {
        int version = in.i32();
        var bytes = in.bytes();
        return bytes.length == 0 ? Payload.EMPTY : new Payload(version, bytes);
    }
}
