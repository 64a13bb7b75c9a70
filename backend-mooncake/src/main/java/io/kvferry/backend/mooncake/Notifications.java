// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import io.kvferry.backend.mooncake.te.Notification;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.transfer.PeerId;

import java.nio.charset.StandardCharsets;
import java.util.Base64;

/// Converts agents' notifications, which are bytes from a peer, to Mooncake's, which are two
/// strings: the name is `agent#incarnation`, the message `kvferry:` and base64. Any other pair came
/// from a sender other than kvferry and is delivered as its text, from a peer of incarnation 0.
final class Notifications {
    /// Base64 must fit into a handshake frame of 1 MiB.
    static final int MOST_BYTES = 700_000;

    private static final String MARK = "kvferry:";

    private Notifications() {}

    record Received(PeerId from, byte[] bytes) {}

    static Notification encode(PeerId self, byte[] bytes) {
        if (bytes.length > MOST_BYTES) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    "a notification of " + bytes.length + " bytes; MOONCAKE carries " + MOST_BYTES);
        }
        return new Notification(
                self.agent() + "#" + Long.toHexString(self.incarnation()),
                MARK + Base64.getEncoder().encodeToString(bytes));
    }

    static Received decode(Notification notification) {
        String name = notification.name();
        int hash = name.lastIndexOf('#');
        if (hash > 0 && notification.message().startsWith(MARK)) {
            try {
                return new Received(
                        new PeerId(
                                name.substring(0, hash),
                                Long.parseUnsignedLong(name.substring(hash + 1), 16)),
                        Base64.getDecoder()
                                .decode(notification.message().substring(MARK.length())));
            } catch (IllegalArgumentException e) {
                return foreign(notification);
            }
        }
        return foreign(notification);
    }

    private static Received foreign(Notification notification) {
        String name = notification.name().isBlank() ? "unnamed" : notification.name();
        return new Received(
                new PeerId(name, 0), notification.message().getBytes(StandardCharsets.UTF_8));
    }
}
