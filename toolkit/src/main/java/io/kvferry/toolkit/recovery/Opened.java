// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.recovery;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.Optional;

/// How opening a connector's worker half went on one rank.
///
/// @param handshake of the half; EMPTY when it could not be opened
/// @param failure empty when it is open
public record Opened(Payload handshake, Optional<Failure> failure) {
    public void write(WireWriter out) {
        out.i32(handshake.version()).bytes(handshake.bytes()).bool(failure.isPresent());
        failure.ifPresent(f -> out.i32(f.code().wire()).string(f.message()));
    }

    public static Opened read(WireReader in) {
        int version = in.i32();
        var bytes = in.bytes();
        var handshake = bytes.length == 0 ? Payload.EMPTY : new Payload(version, bytes);
        if (!in.bool()) {
            return new Opened(handshake, Optional.empty());
        }
        var code = ErrorCode.ofWire(in.i32()).orElse(ErrorCode.INTERNAL);
        return new Opened(handshake, Optional.of(new Failure(code, in.string())));
    }
}
