// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.ReplicaDescriptor;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;

/// The messages between users, owners and the master of stores. A question is `u8 version | u8
/// operation | i64 session | i32 limit in ms | body`, an answer `u8 version | i32 code | body`,
/// where the body is there only if the code is 0.
public final class StoreProtocol {
    static final int VERSION = 3;

    /// Keys of one question at most.
    static final int MOST_KEYS = 1 << 14;

    /// Pieces of memory of one question at most.
    static final int MOST_PIECES = 1 << 18;

    private static final int MOST_SEGMENTS = 64;

    private StoreProtocol() {}

    /// What is asked.
    public enum Operation {
        /// Opens a session. Asks: tenant, model, layout. Answers: session, id of the store, name
        /// and incarnation of its transfer engine, segment, nanoseconds that a session lasts
        /// without a sign of life.
        HELLO(1),
        /// A sign of life. Answers: removals and usage.
        PING(2),
        /// Asks: lease, keys. Answers: results.
        EXISTS(3),
        /// Asks: keys. Answers: results, replicas.
        DESCRIBE(4),
        /// Asks: a number that the user has given no batch of this session yet, options, keys with
        /// sizes and groups. Answers: whether a batch is under way, token of its grant, per key
        /// result and address.
        PUT_START(5),
        /// Asks: number of the batch, whether the bytes are there, checksums. Answers: results.
        /// Without the bytes it may come before its PUT_START, which is refused then.
        PUT_END(6),
        /// Asks: name and incarnation of the user's transfer engine, token of its grant, keys with
        /// their pieces. Answers: per key bytes or code, checksum.
        GET(7),
        /// Asks: key, force. Answers: code.
        REMOVE(8),
        /// Asks: expression, force. Answers: count.
        REMOVE_REGEX(9),
        /// Asks: force. Answers: count.
        REMOVE_ALL(10),
        /// Answers: why the last put found no room.
        NO_ROOM(11),
        /// Asks: key, of which the user has got other bytes than were put.
        DAMAGED(12),
        /// Asks: tenant, beginning of the keys, how many at most. Answers: objects, as [StoredKey].
        LIST(13),
        /// Ends the session.
        BYE(14),
        /// An owner tells the master that it is there, again and again. Asks: the owner. Answers:
        /// nanoseconds that it is listed without another sign of life. SEGMENT_ALREADY_EXISTS when
        /// a later life of it is listed.
        REGISTER(15),
        /// An owner is about to end. Asks: the owner.
        LEAVE(16),
        /// A user asks the master who is there. Asks: life of the master and version that the user
        /// knows. Answers: both, whether the list is whole, whether there is a change and, if so,
        /// the owners and the segments of those that are forgotten.
        OWNERS(17),
        /// An operator tells the master that an owner is gone for good, or may come back. Asks:
        /// segment, whether it is gone. SEGMENT_NOT_FOUND for one that was not gone.
        FORGET(18);

        private final int wire;

        Operation(int wire) {
            this.wire = wire;
        }

        /// @throws KvFerryException [ErrorCode#PROTOCOL] for none of these
        static Operation of(int wire) {
            for (Operation operation : values()) {
                if (operation.wire == wire) {
                    return operation;
                }
            }
            throw new KvFerryException(ErrorCode.PROTOCOL, "store operation " + wire);
        }

        /// Whether it moves bytes or looks at every object.
        boolean isLong() {
            return switch (this) {
                case GET, PUT_END, REMOVE_REGEX, REMOVE_ALL, DAMAGED, LIST, NO_ROOM, BYE -> true;
                case HELLO, PING, EXISTS, DESCRIBE, PUT_START, REMOVE -> false;
                case REGISTER, LEAVE, OWNERS, FORGET -> false;
            };
        }

        /// Whether it takes a moment, or no more than what its own asker has begun.
        boolean isBrief() {
            return !isLong() || this == PUT_END;
        }

        /// Whether the request must reach the peer even if the asking thread is interrupted. The
        /// peer may then receive it twice.
        boolean mustBeHeard() {
            return switch (this) {
                case PUT_END, REMOVE, REMOVE_REGEX, REMOVE_ALL, DAMAGED, BYE, LEAVE -> true;
                case HELLO, PING, EXISTS, DESCRIBE, PUT_START, GET -> false;
                case NO_ROOM, LIST, REGISTER, OWNERS, FORGET -> false;
            };
        }

        /// Whether a master answers it; an owner answers the others.
        public boolean isForMaster() {
            return this == REGISTER || this == LEAVE || this == OWNERS || this == FORGET;
        }
    }

    /// The beginning of a question.
    public static WireWriter question(Operation operation, long session, Duration limit) {
        int millis = Math.clamp(limit.toMillis(), 1, Integer.MAX_VALUE);
        return new WireWriter().u8(VERSION).u8(operation.wire).i64(session).i32(millis);
    }

    /// The beginning of an answer.
    static WireWriter answer(int code) {
        return new WireWriter().u8(VERSION).i32(code);
    }

    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] for another version
    static WireReader open(byte[] message) {
        var in = new WireReader(message);
        int version = in.u8();
        if (version != VERSION) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "store protocol of version " + version + ", this one is " + VERSION);
        }
        return in;
    }

    public static void writeKeys(WireWriter out, Collection<String> keys) {
        out.i32(keys.size());
        keys.forEach(out::string);
    }

    /// @param itemBytes that each of them takes at least
    /// @throws KvFerryException [ErrorCode#PROTOCOL] for too many
    public static int count(WireReader in, int itemBytes, int most) {
        int count = in.count(itemBytes);
        if (count > most) {
            throw new KvFerryException(ErrorCode.PROTOCOL, count + " items; allowed are " + most);
        }
        return count;
    }

    public static List<String> readKeys(WireReader in) {
        int count = count(in, 4, MOST_KEYS);
        var keys = new ArrayList<String>(count);
        for (int i = 0; i < count; i++) {
            keys.add(in.string());
        }
        return keys;
    }

    static void write(WireWriter out, ReplicaDescriptor.Tier tier) {
        out.u8(
                switch (tier) {
                    case MEMORY -> 0;
                    case LOCAL_DISK -> 1;
                    case DISK -> 2;
                });
    }

    static ReplicaDescriptor.Tier readTier(WireReader in) {
        int wire = in.u8();
        return switch (wire) {
            case 0 -> ReplicaDescriptor.Tier.MEMORY;
            case 1 -> ReplicaDescriptor.Tier.LOCAL_DISK;
            case 2 -> ReplicaDescriptor.Tier.DISK;
            default -> throw new KvFerryException(ErrorCode.PROTOCOL, "tier " + wire);
        };
    }

    static void write(WireWriter out, PutOptions options) {
        out.i32(options.replicas()).i64(options.softPin().toNanos()).bool(options.hardPin());
        writeKeys(out, options.preferredSegments());
    }

    static PutOptions readOptions(WireReader in) {
        int replicas = in.i32();
        var softPin = Duration.ofNanos(in.i64());
        boolean hardPin = in.bool();
        var segments = new ArrayList<String>();
        for (int n = count(in, 4, MOST_SEGMENTS); n > 0; n--) {
            segments.add(in.string());
        }
        return new PutOptions(replicas, softPin, hardPin, segments);
    }
}
