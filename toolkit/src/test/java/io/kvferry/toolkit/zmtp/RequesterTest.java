// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.HostNames;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

/// Requests whose answers the asking thread reads itself.
class RequesterTest {
    private static final Duration LONG = Duration.ofSeconds(60);
    private static final Duration BRIEF = Duration.ofMillis(30);
    private static final CurveKeys KEYS = CurveKeys.shared(new byte[32]);

    private final List<AutoCloseable> open = new ArrayList<>();
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final ScheduledThreadPoolExecutor later = new ScheduledThreadPoolExecutor(2);
    private final BlockingQueue<SideChannel.Asker> silent = new LinkedBlockingQueue<>();
    private final Set<Thread> answering = ConcurrentHashMap.newKeySet();
    private Optional<CurveKeys> keys = Optional.empty();

    /// What a ROUTER does with a request: the first byte of it.
    private enum Kind {
        AT_ONCE,
        LATER,
        NEVER
    }

    @AfterEach
    void close() throws Exception {
        for (var each : open.reversed()) {
            each.close();
        }
        threads.shutdownNow();
        later.shutdownNow();
        assertThat(threads.awaitTermination(60, TimeUnit.SECONDS)).isTrue();
    }

    /// Answers with what it was asked.
    private final class Router implements SideChannel.Requests, AutoCloseable {
        private final SideChannel channel = new SideChannel("router", keys);
        private final Set<SideChannel.Asker> askers = ConcurrentHashMap.newKeySet();
        private final String address;

        /// @param port 0 for any
        Router(int port) {
            boolean listens = false;
            try {
                address = channel.listen("127.0.0.1", "127.0.0.1", port, port, this);
                listens = true;
            } finally {
                if (!listens) {
                    channel.close();
                }
            }
        }

        int port() {
            return Integer.parseInt(address.substring(address.lastIndexOf(':') + 1));
        }

        /// Returns when its connections have ended, which the other end can see from then on.
        @Override
        public void close() {
            channel.close();
            var limit = Deadline.in(LONG);
            while (!askers.isEmpty()) {
                assertThat(limit.passed()).as("connections stay").isFalse();
                LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(1));
            }
        }

        @Override
        public void onGone(SideChannel.Asker asker) {
            askers.remove(asker);
        }

        @Override
        public void onRequest(SideChannel.Asker asker, byte[] message) {
            askers.add(asker);
            answering.add(Thread.currentThread());
            switch (Kind.values()[message[0]]) {
                case AT_ONCE -> asker.answerHere(message);
                case LATER ->
                        later.schedule(
                                () -> asker.answer(message), message[1], TimeUnit.MILLISECONDS);
                case NEVER -> silent.add(asker);
            }
        }

        @Override
        public boolean answersHere() {
            return true;
        }
    }

    /// On a port that another one had, which somebody else may have taken for a moment.
    private Router router(int port) {
        for (int tries = 0; ; tries++) {
            try {
                return new Router(port);
            } catch (KvFerryException e) {
                if (tries > 200) {
                    throw e;
                }
                LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(50));
            }
        }
    }

    private String router() {
        var router = new Router(0);
        open.add(router);
        return router.address;
    }

    private Requester requester(String address) {
        var requester = new Requester("test", address, keys);
        open.add(requester);
        return requester;
    }

    private static byte[] request(Kind kind, int delay, long number) {
        return ByteBuffer.allocate(64)
                .put((byte) kind.ordinal())
                .put((byte) delay)
                .putLong(number)
                .array();
    }

    private static void answered(Requester requester, byte[] request) {
        assertThat(requester.ask(request, LONG, LONG)).isEqualTo(request);
    }

    private static void fails(ErrorCode code, Requester requester, Duration limit) {
        assertThatThrownBy(() -> requester.ask(request(Kind.NEVER, 0, 1), LONG, limit))
                .isInstanceOfSatisfying(
                        KvFerryException.class, e -> assertThat(e.code()).isEqualTo(code));
    }

    @Test
    void asksOverOneConnectionAgainAndAgain() {
        var requester = requester(router());
        for (int i = 0; i < 20; i++) {
            answered(requester, request(Kind.AT_ONCE, 0, i));
            answered(requester, request(Kind.LATER, 1, i));
        }
        assertThat(requester.connections()).isEqualTo(1);
    }

    @Test
    void asksUnderCurve() {
        keys = Optional.of(KEYS);
        var requester = requester(router());
        for (int i = 0; i < 20; i++) {
            answered(requester, request(Kind.AT_ONCE, 0, i));
        }
    }

    @Test
    void largeRequestsAndAnswersTravelWhole() {
        var requester = requester(router());
        var large = new byte[SideChannel.MAX_MESSAGE_BYTES];
        new SplittableRandom(1).nextBytes(large);
        large[0] = (byte) Kind.AT_ONCE.ordinal();
        answered(requester, large);
        assertThatThrownBy(() -> requester.ask(new byte[large.length + 1], LONG, LONG))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.INVALID_REQUEST));
    }

    @Test
    void anAnswerThatComesTooLateIsNobodysAnswer() throws Exception {
        var requester = requester(router());
        answered(requester, request(Kind.AT_ONCE, 0, 1));
        fails(ErrorCode.TIMEOUT, requester, BRIEF);
        var late = silent.poll(60, TimeUnit.SECONDS);
        assertThat(late).isNotNull();
        late.answer(new byte[64]);
        answered(requester, request(Kind.AT_ONCE, 0, 2));
    }

    @Test
    void aSecondAnswerEndsTheConnection() throws Exception {
        var requester = requester(router());
        Future<byte[]> asked =
                threads.submit(() -> requester.ask(request(Kind.NEVER, 0, 1), LONG, LONG));
        var asker = silent.poll(60, TimeUnit.SECONDS);
        assertThat(asker).isNotNull();
        assertThat(asker.answerHere(new byte[] {1})).isTrue();
        assertThat(asked.get(60, TimeUnit.SECONDS)).hasSize(1);
        assertThat(asker.answerHere(new byte[] {2})).isTrue(); // it has left, and arrives
        LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(100));
        answered(requester, request(Kind.AT_ONCE, 0, 2));
        assertThat(requester.connections()).isEqualTo(1);
    }

    @Test
    void aConnectionThatEndedAtRestIsNotAsked() {
        var first = new Router(0);
        var requester = requester(first.address);
        answered(requester, request(Kind.AT_ONCE, 0, 1));
        first.close();
        open.add(router(first.port()));
        answered(requester, request(Kind.AT_ONCE, 0, 2));
    }

    @Test
    void closeEndsWhatIsBeingAsked() throws Exception {
        var requester = requester(router());
        Future<?> asked = threads.submit(() -> fails(ErrorCode.CLOSED, requester, LONG));
        assertThat(silent.poll(60, TimeUnit.SECONDS)).isNotNull();
        requester.close();
        asked.get(60, TimeUnit.SECONDS);
        fails(ErrorCode.CLOSED, requester, LONG);
    }

    @Test
    void anInterruptEndsTheWait() throws Exception {
        var requester = requester(router());
        var interrupted = new CompletableFuture<Boolean>();
        var asking =
                Thread.ofPlatform()
                        .start(() -> {
                            fails(ErrorCode.CANCELLED, requester, LONG);
                            interrupted.complete(Thread.currentThread().isInterrupted());
                        });
        assertThat(silent.poll(60, TimeUnit.SECONDS)).isNotNull();
        asking.interrupt();
        assertThat(interrupted.get(60, TimeUnit.SECONDS)).isTrue();
        answered(requester, request(Kind.AT_ONCE, 0, 2));
    }

    @Test
    void requestsBeyondTheBoundWaitForTheirTurn() throws Exception {
        var requester = new Requester("test", router(), keys, 1, HostNames.SYSTEM);
        open.add(requester);
        Future<byte[]> first =
                threads.submit(() -> requester.ask(request(Kind.NEVER, 0, 1), LONG, LONG));
        var asker = silent.poll(60, TimeUnit.SECONDS);
        assertThat(asker).isNotNull();
        fails(ErrorCode.TIMEOUT, requester, BRIEF);
        asker.answer(new byte[1]);
        assertThat(first.get(60, TimeUnit.SECONDS)).hasSize(1);
        answered(requester, request(Kind.AT_ONCE, 0, 2));
        assertThat(silent).isEmpty();
    }

    @Test
    void connectionsThatAskOftenHaveThreadsOfTheirOwnAsManyAsThereAre() {
        String address = router();
        for (int life = 0; life < 2; life++) { // the threads are free again
            answering.clear();
            var all = new ArrayList<Requester>();
            for (int i = 0; i < RouterPort.MOST_THREADS + 3; i++) {
                all.add(requester(address));
            }
            for (var each : all) {
                answered(each, request(Kind.AT_ONCE, 0, 0));
            }
            assertThat(answering).allMatch(Thread::isVirtual);
            var soon = Deadline.in(LONG);
            long most = 0;
            for (int i = 0; i < 8 || most < RouterPort.MOST_THREADS; i++) {
                assertThat(soon.passed()).isFalse();
                for (var each : all) {
                    answered(each, request(Kind.AT_ONCE, 0, i));
                }
                most = Math.max(most, platformThreads());
            }
            assertThat(most).isEqualTo(RouterPort.MOST_THREADS);
            all.forEach(Requester::close);
        }
    }

    /// Those that are there now: after a pause of the machine connections may have got new ones.
    private long platformThreads() {
        return answering.stream().filter(thread -> !thread.isVirtual() && thread.isAlive()).count();
    }

    /// Askers that give up, are interrupted and go on, a ROUTER that answers late, never, and dies:
    /// every answer is that of its request, and everyone ends.
    @Test
    void randomHistories() throws Exception {
        for (int seed = 1; seed <= 8; seed++) {
            keys = seed % 4 == 0 ? Optional.of(KEYS) : Optional.empty();
            history(seed);
        }
    }

    private void history(int seed) throws Exception {
        var random = new SplittableRandom(seed);
        var router = new Router(0);
        int port = router.port();
        var deaths = new AtomicInteger();
        var requester = requester(router.address);
        var work = new ArrayList<Future<?>>();
        int askers = 2 + random.nextInt(5);
        for (int i = 0; i < askers; i++) {
            var own = random.split();
            int number = i;
            work.add(threads.submit(() -> askAll(requester, deaths, own, number)));
        }
        for (int life = random.nextInt(3); life > 0; life--) {
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(random.nextInt(40)));
            deaths.incrementAndGet();
            router.close();
            router = router(port);
        }
        for (var each : work) {
            try {
                each.get(90, TimeUnit.SECONDS);
            } catch (ExecutionException | TimeoutException e) {
                throw new AssertionError("seed " + seed, e);
            }
        }
        assertThat(requester.connections()).as("seed %s", seed).isLessThanOrEqualTo(askers);
        answered(requester, request(Kind.AT_ONCE, 0, -1));
        requester.close();
        assertThat(requester.connections()).as("seed %s", seed).isZero();
        router.close();
    }

    private void askAll(
            Requester requester, AtomicInteger deaths, SplittableRandom random, int asker) {
        int asks = keys.isPresent() ? 6 : 40; // a connection under CURVE takes long to make
        for (int i = 0; i < asks; i++) {
            var kind = Kind.values()[random.nextInt(Kind.values().length)];
            boolean never = kind == Kind.NEVER;
            byte[] request = request(kind, random.nextInt(4), asker * 1000L + i);
            boolean interrupts = random.nextInt(10) == 0;
            var me = Thread.currentThread();
            var interrupt =
                    interrupts
                            ? later.schedule(
                                    me::interrupt, random.nextInt(3000), TimeUnit.MICROSECONDS)
                            : CompletableFuture.completedFuture(0);
            try {
                byte[] answer =
                        requester.ask(
                                request,
                                LONG,
                                never ? Duration.ofMillis(1 + random.nextInt(10)) : LONG);
                assertThat(never).isFalse();
                assertThat(answer).isEqualTo(request);
            } catch (KvFerryException e) {
                switch (e.code()) {
                    case TIMEOUT -> assertThat(never).isTrue();
                    case CANCELLED -> assertThat(interrupts).isTrue();
                    default -> assertThat(deaths.get()).as(e.toString()).isPositive();
                }
            } finally {
                await(interrupt);
            }
        }
    }

    /// Until the interrupt has come, which must not meet the next request.
    private static void await(Future<?> interrupt) {
        for (boolean done = false; !done; ) {
            try {
                interrupt.get(60, TimeUnit.SECONDS);
                done = true;
            } catch (InterruptedException _) {
                continue;
            } catch (ExecutionException | TimeoutException e) {
                throw new IllegalStateException(e);
            }
        }
        var _ = Thread.interrupted();
    }
}
