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
import io.kvferry.toolkit.bounded.FairRoom;
import io.kvferry.toolkit.bounded.GrowSafeQueue;
import io.kvferry.toolkit.net.Cancellation;

import tools.jackson.databind.JsonNode;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;

/// Sends notifications, and keeps received ones until they are taken; the room for these is shared
/// out among hosts, see [FairRoom].
public final class Notifier {
    private static final int PART_OF_HEAP = 16;

    private final SegmentDirectory directory;
    private final HandshakeClient client;
    private final FairRoom room;
    private final Lock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private final GrowSafeQueue<Received> inbox = new GrowSafeQueue<>(); // under the lock
    private boolean closed; // under the lock

    /// @param host where it came from
    private record Received(Notification notification, String host) {}

    /// @param most received notifications of one host that wait to be taken; of all, twice as many
    /// @param mostBytes heap that those of one host may occupy
    public Notifier(SegmentDirectory directory, HandshakeClient client, int most, long mostBytes) {
        this.directory = directory;
        this.client = client;
        long bytes = Math.min(mostBytes, Runtime.getRuntime().maxMemory() / PART_OF_HEAP);
        this.room = new FairRoom(2 * most, 2 * bytes); // of which one host alone takes half
    }

    /// Upper bound of the heap that one occupies.
    private static long bytes(Notification notification) {
        return 128 + 2L * (notification.name().length() + notification.message().length());
    }

    public void send(
            String segmentName,
            Notification notification,
            Deadline deadline,
            Cancellation cancellation) {
        byte[] json = WireJson.bytes(Handshake.notify(notification.name(), notification.message()));
        HostPort peer = directory.handshakeOf(segmentName, deadline, cancellation);
        String what = "notification reply of " + segmentName;
        JsonNode reply =
                WireJson.objectOf(
                        WireJson.parse(
                                client.ask(
                                                peer,
                                                new Message(Handshake.NOTIFY, json),
                                                deadline,
                                                cancellation)
                                        .text(),
                                what),
                        what);
        if (WireJson.text(reply, "notify_msg", what).isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.PEER_REFUSED, segmentName + " refused the notification");
        }
    }

    /// False when the inbox is full, for this host at least, or closed.
    public boolean accept(Notification notification, String host) {
        long bytes = bytes(notification);
        if (!room.take(host, bytes)) {
            return false;
        }
        boolean taken = false;
        lock.lock();
        try {
            if (!closed) {
                inbox.add(new Received(notification, host));
                taken = true;
                changed.signal();
            }
        } finally { // such as no memory for the inbox
            lock.unlock();
            if (!taken) {
                room.give(host, bytes);
            }
        }
        return taken;
    }

    /// Empty when the deadline passes, the thread is interrupted, or the inbox is closed.
    public List<Notification> await(int max, Deadline deadline) {
        lock.lock();
        try {
            while (inbox.isEmpty() && !closed && !deadline.passed()) {
                changed.awaitNanos(deadline.remainingNanos());
            }
            return taken(max);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return List.of();
        } finally {
            lock.unlock();
        }
    }

    public List<Notification> take(int max) {
        lock.lock();
        try {
            return taken(max);
        } finally {
            lock.unlock();
        }
    }

    private List<Notification> taken(int max) {
        List<Notification> taken = new ArrayList<>(Math.min(max, inbox.size()));
        while (taken.size() < max && !inbox.isEmpty()) {
            var received = inbox.element();
            taken.add(received.notification());
            inbox.remove();
            room.give(received.host(), bytes(received.notification()));
        }
        return taken;
    }

    /// Accepts no more notifications and wakes waiting callers. The inbox can still be read.
    public void close() {
        lock.lock();
        try {
            closed = true;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }
}
