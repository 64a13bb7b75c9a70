// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.bounded.ByteBudget;
import io.kvferry.toolkit.bounded.FairRoom;

/// Memory for messages that are being received, which connections share.
///
/// Threading: any thread.
interface ReceiveRoom {
    /// Takes some of it.
    ///
    /// @param patience until which it may wait for what others give back
    /// @return whether there was room; then [#give] is due
    boolean take(int bytes, Deadline patience);

    void give(long bytes);

    /// Of peers that were chosen: a lack of room is said at once.
    static ReceiveRoom of(ByteBudget budget) {
        return new ReceiveRoom() {
            @Override
            public boolean take(int bytes, Deadline patience) {
                return budget.take(bytes);
            }

            @Override
            public void give(long bytes) {
                budget.give(bytes);
            }
        };
    }

    /// Of whoever connects: each host has a share, and waits while that is used up.
    static ReceiveRoom of(FairRoom room, String host) {
        return new ReceiveRoom() {
            @Override
            public boolean take(int bytes, Deadline patience) {
                return room.await(host, 0, bytes, patience);
            }

            @Override
            public void give(long bytes) {
                if (bytes > 0) {
                    room.give(host, 0, bytes);
                }
            }
        };
    }
}
