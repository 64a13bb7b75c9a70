// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.transfer;

/// One life of one agent; the incarnation grows with every start (milliseconds since 1970 will do).
/// A restart under the same name is another incarnation, and handles of the old one are refused.
public record PeerId(String agent, long incarnation) {
    public PeerId {
        if (agent.isBlank()) {
            throw new IllegalArgumentException("an agent needs a name");
        }
    }

    @Override
    public String toString() {
        return agent + "#" + Long.toHexString(incarnation);
    }
}
