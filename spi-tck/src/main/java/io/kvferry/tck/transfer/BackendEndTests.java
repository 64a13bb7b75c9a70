// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.transfer;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.BackendCapabilities.Feature;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;

/// How transfers end: deadlines, cancellation, full queues, limits and threads, of
/// [TransferBackendContract].
abstract class BackendEndTests extends BackendTransferTests {
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
        var late = Deadline.in(limit().multipliedBy(6)); // thousands of them, one after another
        try {
            for (int i = 0; i < 20_000; i++) {
                accepted.add(
                        sides.near()
                                .backend
                                .submit(
                                        new TransferRequest(
                                                sides.route().operation(), local, remote, late)));
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
}
