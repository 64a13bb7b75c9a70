// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.master;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.concurrent.ThreadLocalRandom;

/// An owner as it reports itself.
///
/// @param segment name of its segment
/// @param address `host:port` on which it is asked
/// @param epoch larger for a later life of it
/// @param capacity bytes of its segment
public record ListedOwner(String segment, String address, long epoch, long capacity) {
    private static final int LONGEST_NAME = 512;
    private static final int RANDOM_BITS = 16;

    /// The epoch of an owner that starts now: milliseconds of the wall clock, and a random part
    /// that tells lives of the same millisecond apart.
    static long newEpoch() {
        long random = ThreadLocalRandom.current().nextLong(1L << RANDOM_BITS);
        return System.currentTimeMillis() << RANDOM_BITS | random;
    }

    void write(WireWriter out) {
        out.string(segment).string(address).i64(epoch).i64(capacity);
    }

    /// @throws KvFerryException [ErrorCode#PROTOCOL] for what is no owner
    static ListedOwner read(WireReader in) {
        var owner = new ListedOwner(in.string(), in.string(), in.i64(), in.i64());
        int colon = owner.address.lastIndexOf(':');
        boolean valid =
                isName(owner.segment)
                        && owner.address.length() <= LONGEST_NAME
                        && colon > 0
                        && isPort(owner.address.substring(colon + 1))
                        && owner.capacity >= 0;
        if (!valid) {
            throw new KvFerryException(ErrorCode.PROTOCOL, "no owner: " + owner.segment.length());
        }
        return owner;
    }

    static boolean isName(String segment) {
        return !segment.isBlank()
                && segment.length() <= LONGEST_NAME
                && segment.chars().noneMatch(Character::isISOControl);
    }

    private static boolean isPort(String text) {
        return text.matches("[0-9]{1,5}")
                && Integer.parseInt(text) > 0
                && Integer.parseInt(text) <= 65_535;
    }

    /// Whether only one of the two can be there.
    boolean takesPlaceOf(ListedOwner other) {
        return segment.equals(other.segment) || address.equals(other.address);
    }
}
