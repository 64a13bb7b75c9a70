// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.transfer;

import java.util.concurrent.ThreadLocalRandom;

/// One life of one agent; the incarnation grows with every start (milliseconds since 1970 will do).
/// A restart under the same name is another incarnation, and handles of the old one are refused.
public record PeerId(String agent, long incarnation) {
    private static final int RANDOM_BITS = 16;

    public PeerId {
        if (agent.isBlank()) {
            throw new IllegalArgumentException("an agent needs a name");
        }
    }

    /// An agent that starts now: milliseconds of the wall clock, and a random part that tells
    /// starts of the same millisecond apart.
    public static PeerId startingNow(String agent) {
        long random = ThreadLocalRandom.current().nextLong(1L << RANDOM_BITS);
        return new PeerId(agent, System.currentTimeMillis() << RANDOM_BITS | random);
    }

    @Override
    public String toString() {
        return agent + "#" + Long.toHexString(incarnation);
    }
}
