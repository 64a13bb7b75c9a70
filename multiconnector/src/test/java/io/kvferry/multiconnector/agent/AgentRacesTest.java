// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.TransferBackends.Ranking;
import io.kvferry.spi.transfer.TransferOutcome;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.lang.foreign.Arena;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.SplittableRandom;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/// Random faults at random times: each transfer ends exactly once and releases its buffers, no
/// buffer is touched afterwards, and no notification is delivered twice.
class AgentRacesTest {
    private static final int THREADS = 4;
    private static final long LIMIT_SECONDS = 30;

    /// How the agents are hit while transfers run.
    private enum Blow {
        NONE,
        DROP_PEER,
        CLOSE_PEER,
        CLOSE
    }

    private enum Ending {
        DONE,
        FAILED,
        CANCELLED,
        TIMED_OUT
    }

    private final Map<Ending, AtomicInteger> endings = new EnumMap<>(Ending.class);

    AgentRacesTest() {
        for (var ending : Ending.values()) {
            endings.put(ending, new AtomicInteger());
        }
    }

    @Test
    void everyTransferEndsOnceAndLetsGoWhateverHappensMeanwhile() throws Exception {
        for (int seed = 0; seed < 24; seed++) {
            round(seed, 50);
        }
        assertThat(endings)
                .as("the mixture shows every end")
                .allSatisfy((_, count) -> assertThat(count.get()).isPositive());
    }

    @Test
    @Tag("soak")
    @Timeout(value = 10, unit = TimeUnit.MINUTES)
    void everyTransferEndsOnceAndLetsGoForMinutes() throws Exception {
        var until = Deadline.in(Duration.ofMinutes(3));
        int rounds = 0;
        for (long seed = System.nanoTime(); !until.passed(); seed++) {
            round(seed, 250);
            rounds++;
        }
        System.out.println(rounds + " rounds, " + endings);
    }

    private void round(long seed, int transfersPerThread) throws Exception {
        var random = new SplittableRandom(seed);
        var backends = backends(random);
        var blow = Blow.values()[random.nextInt(Blow.values().length)];
        try (var arena = Arena.ofShared();
                var catalog = AgentPair.catalog(backends.toArray(TestBackend[]::new));
                var threads = Executors.newVirtualThreadPerTaskExecutor()) {
            var ear = new AgentPair.Ear();
            var near = open("near", catalog, backends, new AgentPair.Ear());
            var far = open("far", catalog, backends, ear);
            var scene = new RaceScene(arena, near, far, ear, THREADS);
            var work = new ArrayList<Future<List<RaceScene.Flight>>>();
            for (int thread = 0; thread < THREADS; thread++) {
                var lanes = scene.lanes(thread, random.split());
                work.add(threads.submit(() -> lanes.fly(transfersPerThread)));
            }
            TimeUnit.MICROSECONDS.sleep(random.nextInt(20_000));
            strike(blow, near, far);
            var flights = new ArrayList<RaceScene.Flight>();
            for (var one : work) {
                flights.addAll(one.get(LIMIT_SECONDS, TimeUnit.SECONDS));
            }
            near.close();
            for (var flight : flights) {
                var end = flight.check("seed " + seed + ", " + blow + ", ");
                Objects.requireNonNull(endings.get(ending(end))).incrementAndGet();
            }
            scene.checkNotifications(flights, blow == Blow.CLOSE_PEER, "seed " + seed);
            far.close();
            assertThat(backends).as("seed %d", seed).allMatch(backend -> backend.open.get() == 0);
        }
    }

    private static Ending ending(TransferOutcome outcome) {
        return switch (outcome) {
            case TransferOutcome.Done _ -> Ending.DONE;
            case TransferOutcome.Failed _ -> Ending.FAILED;
            case TransferOutcome.Cancelled _ -> Ending.CANCELLED;
            case TransferOutcome.TimedOut _ -> Ending.TIMED_OUT;
        };
    }

    private static void strike(Blow blow, TransferAgent near, TransferAgent far) {
        switch (blow) {
            case NONE -> {}
            case DROP_PEER -> near.dropPeer(far.self());
            case CLOSE_PEER -> far.close();
            case CLOSE -> near.close();
        }
    }

    /// One to three backends with short queues and faults; some are confined, some require
    /// splitting, some cannot cancel a transfer.
    private static List<TestBackend> backends(SplittableRandom random) {
        var backends = new ArrayList<TestBackend>();
        int count = 1 + random.nextInt(3);
        for (int i = 0; i < count; i++) {
            var options = new HashMap<String, Object>();
            options.put("threading", random.nextBoolean() ? "confined" : "concurrent");
            options.put("max_bytes", random.nextBoolean() ? 1024 : 64);
            options.put("queue", random.nextBoolean() ? 256 : 5);
            if (random.nextInt(3) == 0) {
                options.put("without", List.of("CANCEL"));
            }
            var backend = new TestBackend("B" + i, new ArrayList<>(), options);
            backend.refuseSubmit = ErrorCode.BACKPRESSURE;
            var own = random.split();
            double calm = random.nextDouble();
            backend.chaos =
                    () -> {
                        synchronized (own) {
                            return own.nextDouble() < calm
                                    ? TestBackend.Fault.NONE
                                    : TestBackend.Fault.values()[
                                            own.nextInt(TestBackend.Fault.values().length)];
                        }
                    };
            backends.add(backend);
        }
        return backends;
    }

    private static TransferAgent open(
            String name,
            PluginCatalog catalog,
            List<TestBackend> backends,
            BackendContext.Sink sink) {
        return TransferAgent.open(
                AgentPair.options(name, Ranking.CHEAPEST),
                catalog,
                AgentPair.choices(backends),
                sink,
                EventSink.NONE);
    }
}
