// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.transfer;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatCode;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.transfer.BackendCapabilities.Feature;
import io.kvferry.spi.transfer.BackendCapabilities.Threading;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferBackend.PeerState;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.LockSupport;

/// What each claimed feature promises, and what goes without it, of [TransferBackendContract].
abstract class BackendFeatureTests extends BackendTransferTests {
    private static final int SENDERS = 4;
    private static final int NOTES = 50;

    @Test
    @DisplayName("C19 a peer is not found before its metadata is loaded, and then it is")
    void peersAreFoundOnceTheyAreLoaded() {
        if (!remote()) {
            return; // C13 says that there are none
        }
        var route = anyRoute();
        var near = agent();
        var far = agent();
        var remote = far.area(route.remote(), UNIT);
        refuses(
                () -> near.backend.prepare(Optional.of(far.id), remote.whole()),
                "a peer whose metadata nobody loaded",
                ErrorCode.NOT_FOUND);
        near.meet(far);
        far.meet(near);
        var sides = new Sides(near, near.area(route.local(), UNIT), remote, route);
        done(submit(sides, sides.local().whole(), sides.remote().whole()));
    }

    @Test
    @DisplayName(
            "C20b with SELF_MANAGED_METADATA regions that came later are reached without another exchange")
    void selfManagedMetadataNeedsNoOtherExchange() {
        if (!has(Feature.SELF_MANAGED_METADATA) || !remote()) {
            return; // C20 checks that they are refused
        }
        var sides = sides(anyRoute(), UNIT);
        var later = sides.remote().agent().area(sides.route().remote(), UNIT);
        var again = new Sides(sides.near(), sides.local(), later, sides.route());
        var data = random(UNIT, 201);
        fill(source(again), data);
        assertThatCode(() -> done(submit(again, again.local().whole(), again.remote().whole())))
                .as("a transfer with a region that was registered after the exchange")
                .doesNotThrowAnyException();
        holds(target(again), data);
    }

    @Test
    @DisplayName(
            "C34 which way a transfer would take is said in words, and nothing is moved for it")
    void explanationsMoveNothing() {
        var sides = sides(anyRoute(), UNIT);
        fill(source(sides), random(UNIT, 34));
        var before = contents(target(sides));
        var text =
                sides.near()
                        .backend
                        .explain(
                                new TransferRequest(
                                        sides.route().operation(),
                                        sides.prepareLocal(sides.local().whole()),
                                        sides.prepareRemote(sides.remote().whole()),
                                        soon()));
        assertThat(text).isNotBlank();
        for (int i = 0; i < 20; i++) {
            turn();
        }
        assertThat(contents(target(sides))).isEqualTo(before);
        var transfer = submit(sides, sides.local().whole(), sides.remote().whole());
        done(transfer);
        assertThat(transfer.attempts()).doesNotHaveDuplicates();
    }

    @Test
    @DisplayName("C36 there is no empty list of descriptors, and no empty part of one")
    void emptyListsAreRefused() {
        var sides = sides(anyRoute(), UNIT);
        assertThatThrownBy(() -> DescriptorList.builder(sides.route().local()).build())
                .isInstanceOf(IllegalArgumentException.class);
        var local = sides.prepareLocal(sides.local().whole());
        refuses(
                () -> sides.near().backend.select(local, new int[0]),
                "no index at all",
                ErrorCode.INVALID_REQUEST);
    }

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
        for (int i = 0; i < 20; i++) {
            turn();
        }
        assertThat(sides.remote().agent().notes).isEmpty();
    }

    @Test
    @DisplayName("C44 a peer that dies takes no other with it, and its end is told")
    void peersDieAlone() {
        if (!remote()) {
            return;
        }
        var sides = sides(anyRoute(), UNIT);
        var other = agent();
        var area = other.area(sides.route().remote(), UNIT);
        sides.near().meet(other);
        other.meet(sides.near());
        var good = new Sides(sides.near(), sides.local(), area, sides.route());
        done(submit(sides, sides.local().whole(), sides.remote().whole()));
        close(sides.remote().agent());
        failsWith(
                () -> submit(sides, sides.local().whole(), sides.remote().whole()),
                "a dead peer",
                ErrorCode.PEER_LOST);
        assertThatCode(() -> done(submit(good, good.local().whole(), good.remote().whole())))
                .as("a transfer with a peer that is alive")
                .doesNotThrowAnyException();
        until(
                "SUSPECT or LOST of the dead peer",
                () ->
                        sides.near().states.contains(PeerState.SUSPECT)
                                || sides.near().states.contains(PeerState.LOST));
    }

    @Test
    @DisplayName("C50g after a cancelled transfer is quiesced, nothing of it touches a buffer")
    void quiescedTransfersTouchNothing() {
        assumeTrue(has(Feature.CANCEL), "the backend does not claim CANCEL");
        long bytes = 1024 * UNIT;
        var sides = sides(anyRoute(), bytes);
        fill(source(sides), random(bytes, 507));
        var scribble = new byte[(int) bytes];
        Arrays.fill(scribble, (byte) 0x5A);
        for (int i = 0; i < 8; i++) {
            var transfer = submit(sides, sides.local().whole(), sides.remote().whole());
            boolean promised = transfer.cancel();
            var outcome = end(transfer);
            assertThat(outcome instanceof TransferOutcome.Cancelled).isEqualTo(promised);
            fill(target(sides), scribble);
            // Whatever was still under way would have to be done before this.
            done(submit(sides, sides.local().part(0, UNIT), sides.remote().part(0, UNIT)));
            var now = contents(target(sides));
            assertThat(
                            Arrays.mismatch(
                                    now, (int) UNIT, now.length, scribble, (int) UNIT, now.length))
                    .as("byte written after transfer %d was quiesced", i)
                    .isNegative();
        }
    }

    @Test
    @DisplayName(
            "C54 a failed transfer says of each descriptor whether it moved where that is claimed, and of none where not")
    void failuresNameWhatMoved() {
        var sides = sides(anyRoute(), 4 * UNIT);
        var gone = sides.remote().agent().area(sides.route().remote(), UNIT);
        if (sides.peer().isPresent()) {
            sides.near().meet(sides.remote().agent());
        }
        fill(source(sides), random(4 * UNIT, 54));
        var near = sides.local().registration();
        var far = sides.remote().registration();
        var local =
                sides.prepareLocal(
                        DescriptorList.builder(sides.route().local())
                                .addStrided(near.device(), near.address(), UNIT, UNIT, 3)
                                .build());
        var remote =
                sides.prepareRemote(
                        DescriptorList.builder(sides.route().remote())
                                .add(far.device(), far.address(), UNIT)
                                .add(
                                        gone.registration().device(),
                                        gone.registration().address(),
                                        UNIT)
                                .add(far.device(), far.address() + 2 * UNIT, UNIT)
                                .build());
        gone.registration().close();
        Transfer transfer;
        try {
            transfer =
                    sides.near()
                            .backend
                            .submit(
                                    new TransferRequest(
                                            sides.route().operation(), local, remote, soon()));
        } catch (KvFerryException e) {
            assertThat(e.code())
                    .isIn(ErrorCode.CLOSED, ErrorCode.NOT_FOUND, ErrorCode.PEER_REFUSED);
            return; // refused whole, before anything was started
        }
        var outcome = end(transfer);
        assertThat(outcome).isInstanceOf(TransferOutcome.Failed.class);
        var moved = ((TransferOutcome.Failed) outcome).descriptors();
        if (!has(Feature.PER_DESCRIPTOR_RESULTS)) {
            assertThat(moved).as("results that are not claimed").isEmpty();
            return;
        }
        assertThat(moved).hasSize(3);
        assertThat(moved[1]).as("the range that is gone has moved").isFalse();
        var from = contents(source(sides));
        var to = contents(target(sides));
        for (int i = 0; i < 3; i += 2) {
            if (moved[i]) {
                int at = (int) (i * UNIT);
                assertThat(Arrays.copyOfRange(to, at, at + (int) UNIT))
                        .as("range %d, which is said to have moved", i)
                        .isEqualTo(Arrays.copyOfRange(from, at, at + (int) UNIT));
            }
        }
    }

    @Test
    @DisplayName(
            "C55 a target that nobody polls is reached all the same, unless NEEDS_TARGET_PROGRESS is claimed")
    void targetsNeedNoTurnUnlessClaimed() {
        if (!remote()) {
            assertThat(has(Feature.NEEDS_TARGET_PROGRESS)).isFalse();
            return;
        }
        var sides = sides(anyRoute(), 4 * UNIT);
        var data = random(4 * UNIT, 55);
        fill(source(sides), data);
        var transfer = submit(sides, sides.local().whole(), sides.remote().whole());
        if (!has(Feature.NEEDS_TARGET_PROGRESS)) {
            until(
                    "end of a transfer whose target is not polled",
                    List.of(sides.near()),
                    () -> transfer.poll().isPresent());
            assertThat(transfer.poll().orElseThrow()).isInstanceOf(TransferOutcome.Done.class);
        } else {
            assertThat(claimed().threading())
                    .as("poll() of a CONCURRENT backend does nothing, so nothing can wait for it")
                    .isEqualTo(Threading.CONFINED);
        }
        done(transfer);
        holds(target(sides), data);
    }

    @Test
    @DisplayName("C56 with CHECKSUM, bytes that are damaged on their way are a failed transfer")
    void damageOnTheWayIsNoticed() {
        assumeTrue(has(Feature.CHECKSUM), "the backend does not claim CHECKSUM");
        var sides = sides(anyRoute(), 4 * UNIT);
        fill(source(sides), random(4 * UNIT, 56));
        assumeTrue(damageInTransit(), "nothing can be damaged: override damageInTransit()");
        var outcome = end(submit(sides, sides.local().whole(), sides.remote().whole()));
        assertThat(outcome)
                .isInstanceOfSatisfying(
                        TransferOutcome.Failed.class,
                        failed -> assertThat(failed.failure().code()).isEqualTo(ErrorCode.CORRUPT));
        done(submit(sides, sides.local().whole(), sides.remote().whole()));
    }
}
