// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import io.kvferry.backend.mooncake.te.Notification;
import io.kvferry.backend.mooncake.te.internal.HostPort;
import io.kvferry.backend.mooncake.te.internal.WireJson;
import io.kvferry.backend.mooncake.te.internal.handshake.Handshake;
import io.kvferry.backend.mooncake.te.internal.handshake.Handshake.Message;
import io.kvferry.backend.mooncake.te.internal.handshake.HandshakeClient;
import io.kvferry.backend.mooncake.te.internal.metadata.SegmentDirectory;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.ByteBudget;

import tools.jackson.databind.JsonNode;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/// Sends notifications, and keeps received ones until they are taken.
public final class Notifier {
    private final SegmentDirectory directory;
    private final HandshakeClient client;
    private final BlockingQueue<Notification> inbox;
    private final ByteBudget room;

    /// @param most received notifications that wait to be taken
    /// @param mostBytes heap that they may occupy
    public Notifier(SegmentDirectory directory, HandshakeClient client, int most, long mostBytes) {
        this.directory = directory;
        this.client = client;
        this.inbox = new LinkedBlockingQueue<>(most);
        this.room = ByteBudget.ofHeap(mostBytes, 16);
    }

    /// Upper bound of the heap that one occupies.
    private static long bytes(Notification notification) {
        return 128 + 2L * (notification.name().length() + notification.message().length());
    }

    public void send(String segmentName, Notification notification, Deadline deadline) {
        byte[] json = WireJson.bytes(Handshake.notify(notification.name(), notification.message()));
        HostPort peer = directory.handshakeOf(segmentName, deadline);
        String what = "notification reply of " + segmentName;
        JsonNode reply =
                WireJson.objectOf(
                        WireJson.parse(
                                client.ask(peer, new Message(Handshake.NOTIFY, json), deadline)
                                        .text(),
                                what),
                        what);
        if (WireJson.text(reply, "notify_msg", what).isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.PEER_REFUSED, segmentName + " refused the notification");
        }
    }

    /// False when the inbox is full.
    public boolean accept(Notification notification) {
        long bytes = bytes(notification);
        if (!room.take(bytes)) {
            return false;
        }
        boolean taken = inbox.offer(notification);
        if (!taken) {
            room.give(bytes);
        }
        return taken;
    }

    private List<Notification> leaving(List<Notification> taken) {
        taken.forEach(notification -> room.give(bytes(notification)));
        return taken;
    }

    public List<Notification> await(int max, Deadline deadline) {
        try {
            Notification first =
                    inbox.poll(Math.max(0, deadline.remainingNanos()), TimeUnit.NANOSECONDS);
            if (first == null) {
                return List.of();
            }
            List<Notification> taken = new ArrayList<>(List.of(first));
            inbox.drainTo(taken, max - 1);
            return leaving(taken);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return List.of();
        }
    }

    public List<Notification> take(int max) {
        List<Notification> taken = new ArrayList<>();
        inbox.drainTo(taken, max);
        return leaving(taken);
    }
}
