// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import io.kvferry.backend.mooncake.te.Handshake.Message;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import tools.jackson.databind.JsonNode;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;

/// Sends notifications, and keeps received ones until they are taken.
final class Notifier {
    private final SegmentDirectory directory;
    private final HandshakeClient client;
    private final BlockingQueue<Notification> inbox;

    Notifier(SegmentDirectory directory, HandshakeClient client, int capacity) {
        this.directory = directory;
        this.client = client;
        this.inbox = new ArrayBlockingQueue<>(capacity);
    }

    void send(String segmentName, Notification notification, Deadline deadline) {
        byte[] json = Json.bytes(Handshake.notify(notification.name(), notification.message()));
        HostPort peer = directory.handshakeOf(segmentName, deadline);
        String what = "notification reply of " + segmentName;
        JsonNode reply =
                Json.objectOf(
                        Json.parse(
                                client.ask(peer, new Message(Handshake.NOTIFY, json), deadline)
                                        .text(),
                                what),
                        what);
        if (Json.text(reply, "notify_msg", what).isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.PEER_REFUSED, segmentName + " refused the notification");
        }
    }

    /// False when the inbox is full.
    boolean accept(Notification notification) {
        return inbox.offer(notification);
    }

    List<Notification> await(int max, Deadline deadline) {
        try {
            Notification first =
                    inbox.poll(Math.max(0, deadline.remainingNanos()), TimeUnit.NANOSECONDS);
            if (first == null) {
                return List.of();
            }
            List<Notification> taken = new ArrayList<>(List.of(first));
            inbox.drainTo(taken, max - 1);
            return taken;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return List.of();
        }
    }

    List<Notification> take(int max) {
        List<Notification> taken = new ArrayList<>();
        inbox.drainTo(taken, max);
        return taken;
    }
}
