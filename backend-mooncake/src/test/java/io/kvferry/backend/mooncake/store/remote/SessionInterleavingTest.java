// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreContract;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedStore;
import io.kvferry.backend.mooncake.store.embedded.PutSessions.Started;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.backend.mooncake.store.remote.OwnerSession.OpenPuts;
import io.kvferry.backend.mooncake.te.WriteGrant;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.Random;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;

/// Batches of puts that are begun, ended, given up by their user and by time, and whose session is
/// closed, all at once, with grants that cannot be closed at times. In the end no grant is open and
/// no memory is taken; no object can be read whose grant was open.
class SessionInterleavingTest {
    private static final long SIZE = 4096;
    private static final int NUMBERS = 8;

    /// Of each thread.
    private static final int CALLS = 60;

    @Test
    void whateverMeetsNoGrantIsLeftOpenAndNoMemoryIsLost() throws InterruptedException {
        run(40);
    }

    @Tag("soak")
    @Test
    void whateverMeetsInManyRuns() throws InterruptedException {
        run(Integer.getInteger("kvferry.soak.seeds", 2_000));
    }

    private static void run(int seeds) throws InterruptedException {
        int ended = 0;
        for (int seed = 0; seed < seeds; seed++) {
            ended += new Run(seed).run();
        }
        assertThat(ended).as("batches that ended well").isPositive();
    }

    private static final class Run {
        private final int seed;
        private final EmbeddedStore store =
                EmbeddedStore.open(StoreOwner.fenced(StoreConfig.DEFAULT));
        private final OwnerSession session = new OwnerSession(1, store.client(StoreContract.ONE));
        private final Queue<FlakyGrant> grants = new ConcurrentLinkedQueue<>();
        private final Queue<Throwable> wrong = new ConcurrentLinkedQueue<>();
        private final AtomicInteger ended = new AtomicInteger();

        Run(int seed) {
            this.seed = seed;
            store.mount("a", 64 * SIZE);
        }

        int run() throws InterruptedException {
            try (store) {
                var threads = new ArrayList<Thread>();
                for (int i = 0; i < 4; i++) {
                    var random = new Random(31L * seed + i);
                    int user = i;
                    threads.add(
                            Thread.ofPlatform()
                                    .uncaughtExceptionHandler((_, e) -> wrong.add(e))
                                    .start(() -> use(user, random)));
                }
                for (Thread thread : threads) {
                    thread.join();
                }
                assertThat(wrong).as("seed %d", seed).isEmpty();
                grants.forEach(grant -> grant.flaky = false);
                assertThat(session.close()).as("closed, seed %d", seed).isTrue();
                assertThat(grants).as("seed %d", seed).allMatch(grant -> grant.closed);
                store.client(StoreContract.ONE).removeAll(true);
                assertThat(store.usedBytes()).as("used, seed %d", seed).isZero();
                assertThat(store.keyCount()).as("objects, seed %d", seed).isZero();
            }
            return ended.get();
        }

        private void use(int user, Random random) {
            for (int i = 0; i < CALLS; i++) {
                long number = 1 + random.nextInt(NUMBERS);
                try {
                    switch (random.nextInt(8)) {
                        case 0, 1, 2 -> begin(1 + NUMBERS * i + user, number, random);
                        case 3, 4 -> end(number, true);
                        case 5 -> end(number, false);
                        case 6 -> session.revokeLate();
                        default -> {
                            if (i > CALLS - 10) { // more than one thread closes it
                                session.close();
                            }
                        }
                    }
                } catch (OutOfMemoryError _) {
                    Thread.onSpinWait(); // a call that failed in the middle; nobody tries it again
                }
            }
        }

        private void begin(int key, long number, Random random) {
            var limit = random.nextBoolean() ? Duration.ZERO : Duration.ofMinutes(1);
            OpenPuts batch = session.begin(number, 1, Deadline.in(limit));
            if (batch == null) {
                return;
            }
            boolean begun = false;
            try {
                var name = "k" + key;
                session.client.putStart(
                        List.of(name),
                        new long[] {SIZE},
                        List.of(),
                        PutOptions.DEFAULT,
                        batch.started(),
                        batch.results());
                @Nullable Started put = batch.started()[0];
                if (put != null) {
                    var grant = new FlakyGrant(put, name);
                    grants.add(grant);
                    batch.permit(grant);
                    begun = random.nextInt(5) > 0;
                }
            } finally {
                if (begun) {
                    session.begun(batch);
                } else {
                    session.giveUp(batch);
                }
            }
        }

        private void end(long number, boolean written) {
            int[] results = session.end(number, written, new int[1]);
            if (written && results.length == 1 && results[0] == 0) {
                ended.incrementAndGet();
            }
        }

        /// A grant that cannot be closed at times. While it is open the memory is that of its put.
        private final class FlakyGrant implements WriteGrant {
            private final Started put;
            private final String key;
            private volatile boolean flaky = true;
            private volatile boolean closed;

            FlakyGrant(Started put, String key) {
                this.put = put;
                this.key = key;
            }

            @Override
            public long token() {
                return put.number();
            }

            @Override
            public void close() {
                if (!closed) {
                    var found = new int[1];
                    session.client.exists(List.of(key), false, found);
                    if (found[0] == 1) {
                        wrong.add(new AssertionError(key + " can be read while it is written"));
                    }
                }
                int luck = flaky && !closed ? ThreadLocalRandom.current().nextInt(6) : 5;
                if (luck == 0) {
                    throw new KvFerryException(ErrorCode.TIMEOUT, "a copy was stopped");
                }
                if (luck == 1) {
                    throw new OutOfMemoryError("a full heap");
                }
                closed = true;
            }
        }
    }
}
