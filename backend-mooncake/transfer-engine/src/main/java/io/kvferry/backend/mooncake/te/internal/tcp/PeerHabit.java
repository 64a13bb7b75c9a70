// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

/// What a peer of protocol version 1 does with a connection after a request; they do not say, so it
/// is tried once.
///
/// Threading: any thread.
public final class PeerHabit {
    enum Kind {
        UNKNOWN,
        KEEPS_OPEN,
        CLOSES
    }

    private volatile Kind kind = Kind.UNKNOWN;

    Kind kind() {
        return kind;
    }

    void learn(Kind seen) {
        kind = seen;
    }
}
