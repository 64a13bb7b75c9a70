// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.Objects;

/// Names one transfer of one connector within one life of the engine; completions are idempotent by
/// (id, rank).
///
/// @param subject the request's id, or the hash of an encoder item
/// @param attempt how often the subject was tried before; a late completion of an earlier attempt
///   is thereby told apart
/// @param job tells several transfers of one attempt apart: chunk by chunk saves, a lease beside a
///   hold; 0 for the only one
/// @param child instance path of the child of a composite that the transfer belongs to, empty for
///   the engine's own
public record TransferId(String subject, int attempt, Direction direction, int job, String child) {
    /// Direction of the transfer, seen from the engine's blocks.
    public enum Direction {
        /// Writes them.
        LOAD(0),
        /// Reads them.
        SAVE(1);

        private final int wire;

        Direction(int wire) {
            this.wire = wire;
        }
    }

    public TransferId {
        Objects.requireNonNull(subject, "subject");
        Objects.requireNonNull(direction, "direction");
        Objects.requireNonNull(child, "child");
    }

    /// The only transfer of its attempt.
    public TransferId(String subject, int attempt, Direction direction, String child) {
        this(subject, attempt, direction, 0, child);
    }

    public static TransferId load(String subject, int attempt) {
        return new TransferId(subject, attempt, Direction.LOAD, "");
    }

    public static TransferId save(String subject, int attempt) {
        return new TransferId(subject, attempt, Direction.SAVE, "");
    }

    /// The id under which a child of a composite does its part of this transfer.
    public TransferId forChild(String instance) {
        return new TransferId(subject, attempt, direction, job, instance);
    }

    public void write(WireWriter out) {
        out.string(subject).i32(attempt).u8(direction.wire).i32(job).string(child);
    }

    public static TransferId read(WireReader in) {
        var subject = in.string();
        int attempt = in.i32();
        int direction = in.u8();
        if (direction > 1) {
            throw new KvFerryException(ErrorCode.PROTOCOL, "transfer direction " + direction);
        }
        return new TransferId(
                subject,
                attempt,
                direction == 0 ? Direction.LOAD : Direction.SAVE,
                in.i32(),
                in.string());
    }

    @Override
    public String toString() {
        return direction
                + ":"
                + subject
                + "/"
                + attempt
                + (job == 0 ? "" : "." + job)
                + (child.isEmpty() ? "" : "@" + child);
    }
}
