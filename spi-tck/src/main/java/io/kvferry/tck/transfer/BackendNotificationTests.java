// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.transfer;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.transfer.BackendCapabilities.Feature;
import io.kvferry.spi.transfer.BackendCapabilities.Route;
import io.kvferry.spi.transfer.BackendCapabilities.Threading;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.TransferRequest;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Optional;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

/// Notifications of [TransferBackendContract].
abstract class BackendNotificationTests extends BackendEndTests {
    @Test
    @DisplayName("C37 a notification comes after the data, once, with its sender")
    void notificationsComeAfterTheDataOnce() {
        if (!remote() || !has(Feature.NOTIFY)) {
            refusesNotifications();
            return;
        }
        var route =
                claimed().routes().stream()
                        .filter(r ->
                                r.scope() == Route.Scope.REMOTE && r.operation() == Operation.WRITE)
                        .findFirst()
                        .orElseGet(this::anyRoute);
        var sides = sides(route, 8 * UNIT);
        var data = random(8 * UNIT, 37);
        fill(source(sides), data);
        var early = new AtomicInteger();
        sides.remote().agent().onNote =
                () -> {
                    if (!Arrays.equals(contents(target(sides)), data)) {
                        early.incrementAndGet();
                    }
                };
        var request =
                new TransferRequest(
                        route.operation(),
                        sides.prepareLocal(sides.local().whole()),
                        sides.prepareRemote(sides.remote().whole()),
                        Optional.of("done".getBytes(StandardCharsets.UTF_8)),
                        soon(),
                        "tck");
        done(sides.near().backend.submit(request));
        var notes = sides.remote().agent().notes;
        until("the notification", () -> !notes.isEmpty());
        assertThat(early).as("notifications before their data").hasValue(0);
        sides.remote().agent().onNote = () -> {};
        sides.near().backend.notify(sides.remote().agent().id, new byte[0]);
        sides.remote()
                .agent()
                .backend
                .notify(sides.near().id, "back".getBytes(StandardCharsets.UTF_8));
        until("an empty notification", () -> notes.size() == 2);
        until("a notification back", () -> sides.near().notes.size() == 1);
        for (int i = 0; i < 20; i++) {
            turn();
        }
        assertThat(notes)
                .hasSize(2)
                .allSatisfy(note -> assertThat(note.from()).isEqualTo(sides.near().id));
        assertThat(notes.peek().bytes()).isEqualTo("done".getBytes(StandardCharsets.UTF_8));
        assertThat(sides.near().notes.peek().from()).isEqualTo(sides.remote().agent().id);
    }

    private void refusesNotifications() {
        var sides = sides(anyRoute(), UNIT);
        var request =
                new TransferRequest(
                        sides.route().operation(),
                        sides.prepareLocal(sides.local().whole()),
                        sides.prepareRemote(sides.remote().whole()),
                        Optional.of(new byte[] {1}),
                        soon(),
                        "tck");
        if (!has(Feature.NOTIFY)) {
            refuses(
                    () -> sides.near().backend.submit(request),
                    "a notification",
                    ErrorCode.UNSUPPORTED);
            refuses(
                    () -> sides.near().backend.notify(sides.remote().agent().id, new byte[0]),
                    "notify",
                    ErrorCode.UNSUPPORTED);
        }
    }

    private static final int SENDERS = 4;

    private static final int NOTES = 50;

    @Test
    @DisplayName("C37b notifications from many senders all arrive, each once")
    void manyNotificationsArriveOnce() throws InterruptedException {
        assumeTrue(remote() && has(Feature.NOTIFY), "the backend does not claim NOTIFY");
        var sides = sides(anyRoute(), UNIT);
        var target = sides.remote().agent();
        var failures = new ConcurrentLinkedQueue<Throwable>();
        if (claimed().threading() == Threading.CONFINED) {
            for (int sender = 0; sender < SENDERS; sender++) {
                send(sides.near(), target.id, sender);
            }
        } else {
            var threads = new ArrayList<Thread>();
            for (int t = 0; t < SENDERS; t++) {
                int sender = t;
                threads.add(
                        Thread.ofPlatform()
                                .name("tck-notify-" + sender)
                                .start(() -> {
                                    try {
                                        send(sides.near(), target.id, sender);
                                    } catch (Throwable e) {
                                        failures.add(e);
                                    }
                                }));
            }
            for (var thread : threads) {
                thread.join();
            }
        }
        assertThat(failures).isEmpty();
        until("all notifications", () -> target.notes.size() >= SENDERS * NOTES);
        for (int i = 0; i < 20; i++) {
            turn();
        }
        var seen = new HashSet<ByteBuffer>();
        target.notes.forEach(note -> seen.add(ByteBuffer.wrap(note.bytes())));
        assertThat(target.notes).as("notifications").hasSize(SENDERS * NOTES);
        assertThat(seen).as("unlike notifications").hasSize(SENDERS * NOTES);
    }

    /// What is refused as back-pressure was not sent, and is sent again.
    private void send(Agent from, PeerId to, int sender) {
        var end = soon();
        for (int i = 0; i < NOTES; ) {
            try {
                from.backend.notify(to, (sender + " sends " + i).getBytes(StandardCharsets.UTF_8));
                i++;
            } catch (KvFerryException e) {
                assertThat(e.code()).isEqualTo(ErrorCode.BACKPRESSURE);
                assertThat(end.passed()).as("back-pressure that does not end").isFalse();
                if (claimed().threading() == Threading.CONFINED) {
                    turn();
                } else {
                    LockSupport.parkNanos(100_000);
                }
            }
        }
    }

    @Test
    @DisplayName("C37c a transfer that fails brings no notification")
    void failedTransfersDoNotNotify() {
        assumeTrue(remote() && has(Feature.NOTIFY), "the backend does not claim NOTIFY");
        var sides = sides(anyRoute(), UNIT);
        var request =
                new TransferRequest(
                        sides.route().operation(),
                        sides.prepareLocal(sides.local().whole()),
                        sides.prepareRemote(sides.remote().whole()),
                        Optional.of("done".getBytes(StandardCharsets.UTF_8)),
                        soon(),
                        "tck");
        sides.remote().registration().close();
        failsWith(
                () -> sides.near().backend.submit(request),
                "a transfer with forgotten memory",
                ErrorCode.CLOSED,
                ErrorCode.NOT_FOUND,
                ErrorCode.PEER_REFUSED,
                ErrorCode.PEER_LOST);
        var later = sides.remote().agent().area(sides.route().remote(), UNIT);
        sides.near().meet(sides.remote().agent());
        var good = new Sides(sides.near(), sides.local(), later, sides.route());
        done(submit(good, good.local().whole(), good.remote().whole())); // what was sent is there
        // Without it a receiver that is slow would hide a wrong notification sent before.
        var notes = sides.remote().agent().notes;
        sides.near().backend.notify(sides.remote().agent().id, LAST);
        until("the last notification", () -> notes.stream().anyMatch(note -> isLast(note.bytes())));
        for (int i = 0; i < 20; i++) {
            turn();
        }
        assertThat(notes).as("notifications").allMatch(note -> isLast(note.bytes())).hasSize(1);
    }

    private static final byte[] LAST = {'l', 'a', 's', 't'};

    private static boolean isLast(byte[] notification) {
        return Arrays.equals(notification, LAST);
    }
}
