// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.transfer;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryKind;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.BackendCapabilities.Feature;
import io.kvferry.spi.transfer.BackendCapabilities.Route;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;

/// Transfers, notifications and limits of [TransferBackendContract].
abstract class BackendTransferTests extends BackendContractSupport {
    @Test
    @DisplayName("C25 every claimed route moves exactly the bytes that its descriptors name")
    void everyClaimedRouteMovesItsBytes() {
        for (var route : claimed().routes()) {
            var sides = sides(route, 64 * UNIT);
            var data = random(64 * UNIT, 25);
            fill(source(sides), data);
            var random = new Random(26);
            var local = DescriptorList.builder(route.local());
            var remote = DescriptorList.builder(route.remote());
            var expected = contents(target(sides));
            boolean reading = route.operation() == Operation.READ;
            for (int i = 0; i < 20; i++) {
                long length = UNIT * (1 + random.nextInt(2));
                long near = 3 * UNIT * i;
                long far = 3 * UNIT * (19 - i); // another order on the other side
                local.add(
                        sides.local().registration().device(),
                        sides.local().registration().address() + near,
                        length);
                remote.add(
                        sides.remote().registration().device(),
                        sides.remote().registration().address() + far,
                        length);
                System.arraycopy(
                        data,
                        (int) (reading ? far : near),
                        expected,
                        (int) (reading ? near : far),
                        (int) length);
            }
            var list = local.build();
            var done = done(submit(sides, list, remote.build()));
            assertThat(done.bytes()).as(route.toString()).isEqualTo(list.bytes());
            assertThat(done.nanos()).isNotNegative();
            assertThat(done.applied()).isEqualTo(has(Feature.APPLIED_ON_COMPLETION));
            holds(target(sides), expected);
        }
    }

    @Test
    @DisplayName("C26a strided descriptors move the same bytes as single ones")
    void stridedDescriptorsMoveTheSameBytes() {
        var route = anyRoute();
        var sides = sides(route, 32 * UNIT);
        var data = random(32 * UNIT, 27);
        fill(source(sides), data);
        var near = sides.local().registration();
        var far = sides.remote().registration();
        var local =
                DescriptorList.builder(route.local())
                        .addStrided(near.device(), near.address(), UNIT, 2 * UNIT, 16);
        var remote =
                DescriptorList.builder(route.remote())
                        .addStrided(far.device(), far.address(), UNIT, 2 * UNIT, 16);
        var expected = contents(target(sides));
        for (int i = 0; i < 16; i++) {
            System.arraycopy(
                    data, (int) (2 * UNIT * i), expected, (int) (2 * UNIT * i), (int) UNIT);
        }
        done(submit(sides, local.build(), remote.build()));
        holds(target(sides), expected);
    }

    @Test
    @DisplayName(
            "C26b any part of prepared lists can be posted, in any order; an index out of range is refused")
    void partsOfPreparedListsArePosted() {
        var route = anyRoute();
        var sides = sides(route, 16 * UNIT);
        var data = random(16 * UNIT, 29);
        fill(source(sides), data);
        var near = sides.local().registration();
        var far = sides.remote().registration();
        var local =
                sides.prepareLocal(
                        DescriptorList.builder(route.local())
                                .addStrided(near.device(), near.address(), UNIT, UNIT, 16)
                                .build());
        var remote =
                sides.prepareRemote(
                        DescriptorList.builder(route.remote())
                                .addStrided(far.device(), far.address(), UNIT, UNIT, 16)
                                .build());
        int[] some = {3, 11, 0};
        var expected = contents(target(sides));
        for (int i : some) {
            System.arraycopy(data, (int) (UNIT * i), expected, (int) (UNIT * i), (int) UNIT);
        }
        var backend = sides.near().backend;
        done(
                backend.submit(
                        new TransferRequest(
                                route.operation(),
                                backend.select(local, some),
                                backend.select(remote, some),
                                soon())));
        holds(target(sides), expected);
        refuses(
                () -> backend.select(local, new int[] {16}),
                "an index out of range",
                ErrorCode.INVALID_REQUEST);
    }

    @Test
    @DisplayName("C27 sides that do not match are refused before anything is started")
    void refusesSidesThatDoNotMatch() {
        var sides = sides(anyRoute(), 8 * UNIT);
        var before = contents(target(sides));
        fill(source(sides), random(8 * UNIT, 28));
        refuses(
                () -> submit(sides, sides.local().part(0, UNIT), sides.remote().part(0, 2 * UNIT)),
                "other lengths",
                ErrorCode.INVALID_REQUEST);
        var two =
                DescriptorList.builder(sides.route().remote())
                        .add(
                                sides.remote().registration().device(),
                                sides.remote().registration().address(),
                                UNIT)
                        .add(
                                sides.remote().registration().device(),
                                sides.remote().registration().address() + 2 * UNIT,
                                UNIT)
                        .build();
        refuses(
                () -> submit(sides, sides.local().part(0, 2 * UNIT), two),
                "other counts",
                ErrorCode.INVALID_REQUEST);
        if (sides.peer().isPresent()) {
            var local = sides.prepareLocal(sides.local().part(0, UNIT));
            var remote = sides.prepareRemote(sides.remote().part(0, UNIT));
            refuses(
                    () ->
                            sides.near()
                                    .backend
                                    .submit(
                                            new TransferRequest(
                                                    sides.route().operation(),
                                                    remote,
                                                    local,
                                                    soon())),
                    "swapped sides",
                    ErrorCode.INVALID_REQUEST);
        }
        assertThat(contents(target(sides))).isEqualTo(before);
    }

    @Test
    @DisplayName("C28 a route that is not claimed is refused")
    void refusesRoutesThatAreNotClaimed() {
        var near = agent();
        var kinds =
                near.backend.capabilities().routes().stream()
                        .flatMap(route -> List.of(route.local(), route.remote()).stream())
                        .distinct()
                        .toList();
        for (var local : kinds) {
            for (var remote : kinds) {
                for (var operation : Operation.values()) {
                    var route = new Route(operation, local, remote, Route.Scope.LOOPBACK);
                    if (!claimed().serves(route)) {
                        var sides =
                                new Sides(
                                        near,
                                        near.area(local, UNIT),
                                        near.area(remote, UNIT),
                                        route);
                        refuses(
                                () -> submit(sides, sides.local().whole(), sides.remote().whole()),
                                "unclaimed " + route,
                                ErrorCode.UNSUPPORTED,
                                ErrorCode.INVALID_REQUEST);
                    }
                }
            }
        }
        for (var kind : MemoryKind.values()) {
            assertThat(kind.wire()).isNotNegative();
        }
    }

    @Test
    @DisplayName("C29 ranges outside of what is registered, or across two regions, are not found")
    void refusesRangesThatAreNotCovered() {
        var sides = sides(anyRoute(), 4 * UNIT);
        refuses(
                () -> sides.prepareLocal(sides.local().part(2 * UNIT, 4 * UNIT)),
                "past the end",
                ErrorCode.NOT_FOUND);
        refuses(
                () -> sides.prepareRemote(sides.remote().part(-UNIT, 2 * UNIT)),
                "before the start",
                ErrorCode.NOT_FOUND);
        refuses(
                () -> sides.prepareRemote(sides.remote().part(0, Long.MAX_VALUE - UNIT)),
                "huge",
                ErrorCode.NOT_FOUND);
        var other = sides.near().area(sides.route().local(), 4 * UNIT);
        long first =
                Math.min(sides.local().registration().address(), other.registration().address());
        long last =
                Math.max(sides.local().registration().address(), other.registration().address());
        if (sides.local().registration().device() == other.registration().device()) {
            var across =
                    DescriptorList.of(
                            sides.route().local(),
                            other.registration().device(),
                            first,
                            last - first + UNIT);
            refuses(() -> sides.prepareLocal(across), "across two regions", ErrorCode.NOT_FOUND);
        }
    }

    @Test
    @DisplayName(
            "C31 prepared lists are posted again and again, also while earlier posts are active")
    void preparedListsArePostedAgain() {
        var sides = sides(anyRoute(), 16 * UNIT);
        var local = sides.prepareLocal(sides.local().whole());
        var remote = sides.prepareRemote(sides.remote().whole());
        var active = new ArrayList<Transfer>();
        var data = random(16 * UNIT, 31);
        fill(source(sides), data);
        for (int i = 0; i < 8; i++) {
            active.add(
                    sides.near()
                            .backend
                            .submit(
                                    new TransferRequest(
                                            sides.route().operation(), local, remote, soon())));
        }
        assertThat(active.stream().map(Transfer::id)).doesNotHaveDuplicates();
        active.forEach(this::done);
        holds(target(sides), data);
    }

    @Test
    @DisplayName("C33 closing prepared lists does not harm transfers under way")
    void closingPreparedListsHarmsNothing() {
        var sides = sides(anyRoute(), 16 * UNIT);
        var data = random(16 * UNIT, 33);
        fill(source(sides), data);
        var local = sides.prepareLocal(sides.local().whole());
        var remote = sides.prepareRemote(sides.remote().whole());
        var transfer =
                sides.near()
                        .backend
                        .submit(
                                new TransferRequest(
                                        sides.route().operation(), local, remote, soon()));
        local.close();
        remote.close();
        local.close();
        done(transfer);
        holds(target(sides), data);
    }

    @Test
    @DisplayName("C46 figures are named for a metrics page, count up, and are told once")
    void figuresAreToldOnce() {
        var sides = sides(anyRoute(), UNIT);
        for (int i = 0; i < 3; i++) {
            done(
                    sides.near()
                            .backend
                            .submit(
                                    new TransferRequest(
                                            sides.route().operation(),
                                            sides.prepareLocal(sides.local().whole()),
                                            sides.prepareRemote(sides.remote().whole()),
                                            soon())));
        }
        var figures = sides.near().backend.drainStats();
        assertThat(figures.counters().values()).allMatch(value -> value > 0);
        assertThat(figures.counters().keySet()).allMatch(name -> name.matches("[A-Za-z0-9_./:-]+"));
        assertThat(sides.near().backend.drainStats().counters())
                .as("figures of an idle backend")
                .isEmpty();
    }

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

    @Test
    @DisplayName(
            "C47 a CONCURRENT backend takes transfers from many threads; a CONFINED one says so")
    void manyThreadsSubmit() throws InterruptedException {
        var sides = sides(anyRoute(), 64 * UNIT);
        var data = random(64 * UNIT, 47);
        fill(source(sides), data);
        var failures = new ConcurrentLinkedQueue<Throwable>();
        if (claimed().threading() == BackendCapabilities.Threading.CONFINED) {
            done(submit(sides, sides.local().whole(), sides.remote().whole()));
            holds(target(sides), data);
            return;
        }
        assertThat(sides.near().backend.poll()).as("poll() of a CONCURRENT backend").isZero();
        var threads = new ArrayList<Thread>();
        for (int t = 0; t < 4; t++) {
            long at = t * 16 * UNIT;
            threads.add(
                    Thread.ofPlatform()
                            .name("tck-submit-" + t)
                            .start(() -> {
                                try {
                                    for (int i = 0; i < 50; i++) {
                                        done(
                                                submit(
                                                        sides,
                                                        sides.local().part(at, 16 * UNIT),
                                                        sides.remote().part(at, 16 * UNIT)));
                                    }
                                } catch (Throwable e) {
                                    failures.add(e);
                                }
                            }));
        }
        for (var thread : threads) {
            thread.join();
        }
        assertThat(failures).isEmpty();
        holds(target(sides), data);
    }

    @Test
    @DisplayName("C50a a deadline that has passed ends the transfer as timed out")
    void deadlinesEndTransfers() {
        var sides = sides(anyRoute(), 4 * UNIT);
        var late =
                new TransferRequest(
                        sides.route().operation(), sides.prepareLocal(sides.local().whole()),
                        sides.prepareRemote(sides.remote().whole()), Deadline.in(Duration.ZERO));
        assertThat(end(sides.near().backend.submit(late)))
                .isInstanceOf(TransferOutcome.TimedOut.class);
    }

    @Test
    @DisplayName(
            "C50b a cancelled transfer ends once; a backend without CANCEL says no and goes on")
    void cancellationsEndOnce() {
        var sides = sides(anyRoute(), 256 * UNIT);
        var data = random(256 * UNIT, 50);
        fill(source(sides), data);
        for (int i = 0; i < 50; i++) {
            var transfer = submit(sides, sides.local().whole(), sides.remote().whole());
            var ends = new AtomicInteger();
            var unused = transfer.completion().thenAccept(_ -> ends.incrementAndGet());
            boolean promised = transfer.cancel();
            if (!has(Feature.CANCEL)) {
                assertThat(promised).as("cancel() without CANCEL").isFalse();
            }
            var outcome = end(transfer);
            assertThat(outcome)
                    .isInstanceOf(
                            promised
                                    ? TransferOutcome.Cancelled.class
                                    : TransferOutcome.Done.class);
            until("the callback", () -> ends.get() == 1);
            assertThat(transfer.cancel()).as("cancel() of an ended transfer").isFalse();
        }
    }

    @Test
    @DisplayName("C50c a cancellation at any moment leaves no transfer without an end")
    void cancellationsAtAnyMomentEnd() {
        assumeTrue(has(Feature.CANCEL), "the backend does not claim CANCEL");
        var sides = sides(anyRoute(), 16 * UNIT);
        var moments = new SplittableRandom(50);
        for (int i = 0; i < 1_000; i++) {
            var transfer = submit(sides, sides.local().whole(), sides.remote().whole());
            long moment = System.nanoTime() + moments.nextLong(60_000);
            while (System.nanoTime() < moment) {
                Thread.onSpinWait();
            }
            boolean promised = transfer.cancel();
            assertThat(end(transfer) instanceof TransferOutcome.Cancelled)
                    .as("transfer %d: cancel() said %s", i, promised)
                    .isEqualTo(promised);
        }
    }

    @Test
    @DisplayName(
            "C50d a full queue is back-pressure: refused at once, and what was accepted ends well")
    void fullQueuesRefuse() {
        var sides = sides(anyRoute(), 64 * UNIT);
        var local = sides.prepareLocal(sides.local().whole());
        var remote = sides.prepareRemote(sides.remote().whole());
        var accepted = new ArrayList<Transfer>();
        try {
            for (int i = 0; i < 20_000; i++) {
                accepted.add(
                        sides.near()
                                .backend
                                .submit(
                                        new TransferRequest(
                                                sides.route().operation(), local, remote, soon())));
            }
        } catch (KvFerryException e) {
            assertThat(e.code()).isEqualTo(ErrorCode.BACKPRESSURE);
        }
        if (claimed().threading() == BackendCapabilities.Threading.CONFINED) {
            assertThat(accepted) // nobody polled meanwhile
                    .as("transfers that a backend takes without being able to move one")
                    .hasSizeLessThan(20_000);
        }
        accepted.forEach(this::done);
    }

    @Test
    @DisplayName(
            "C52 limits: more descriptors, more bytes or less alignment than claimed are refused")
    void limitsAreKept() {
        var limits = claimed();
        var route = anyRoute();
        if (limits.alignment() > 1) {
            var sides = sides(route, 4 * UNIT);
            long odd = limits.alignment() / 2;
            refuses(
                    () ->
                            submit(
                                    sides,
                                    sides.local().part(odd, UNIT),
                                    sides.remote().part(0, UNIT)),
                    "a misaligned address",
                    ErrorCode.INVALID_REQUEST);
            refuses(
                    () -> submit(sides, sides.local().part(0, odd), sides.remote().part(0, odd)),
                    "a misaligned length",
                    ErrorCode.INVALID_REQUEST);
        }
        int most = limits.maxDescriptors();
        if (most <= 1 << 16) {
            var sides = sides(route, (most + 1L) * limits.alignment());
            var near = sides.local().registration();
            var far = sides.remote().registration();
            int step = limits.alignment();
            var local =
                    DescriptorList.builder(route.local())
                            .addStrided(near.device(), near.address(), step, step, most + 1);
            var remote =
                    DescriptorList.builder(route.remote())
                            .addStrided(far.device(), far.address(), step, step, most + 1);
            refuses(
                    () -> submit(sides, local.build(), remote.build()),
                    "too many descriptors",
                    ErrorCode.INVALID_REQUEST);
        }
        if (limits.maxBytes() <= 64L << 20) {
            long bytes = (limits.maxBytes() / UNIT + 1) * UNIT;
            var sides = sides(route, bytes);
            refuses(
                    () -> submit(sides, sides.local().whole(), sides.remote().whole()),
                    "too many bytes",
                    ErrorCode.INVALID_REQUEST);
        }
    }
}
