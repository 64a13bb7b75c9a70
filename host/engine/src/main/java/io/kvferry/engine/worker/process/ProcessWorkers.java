// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.process;

import io.kvferry.engine.worker.Handshakes;
import io.kvferry.engine.worker.RankResult;
import io.kvferry.engine.worker.StepPlan;
import io.kvferry.engine.worker.WorkerGroup;
import io.kvferry.engine.worker.WorkerLauncher;
import io.kvferry.engine.worker.WorkerSetup;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.wire.WireWriter;

import org.jspecify.annotations.Nullable;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/// The ranks of an engine in child processes. If a rank dies or does not answer in time, the group
/// fails: the caller gets a coded failure, and [#close] ends the other children. The end of a child
/// also wakes the engine, so that it is noticed without a request.
///
/// The caller writes a step's plan, encoded once for all ranks, to each child itself, and waits for
/// the threads that read the children's answers. So a step wakes one thread per rank on the way to
/// the child and one on the way back.
public final class ProcessWorkers implements WorkerGroup {
    /// What the caller writes itself: with the frame's header one page (PIPE_BUF). Every pipe holds
    /// that, also those that the kernel makes small because a user has many, and it is empty when
    /// its rank has answered, so that the caller never waits for a child that does not read. Longer
    /// plans, those with long prompts, are left to the rank's own thread.
    private static final int WRITTEN_AT_ONCE = 4096 - WorkerPipe.HEADER_BYTES;

    /// How long the children may take to close their connectors before they are killed.
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(10);

    private final List<Rank> ranks = new ArrayList<>();
    private final StepEncoder encoder = new StepEncoder();
    private final List<Handshakes> handshakes = new ArrayList<>();
    private final List<RankResult> results = new ArrayList<>();

    /// How long the end of a killed process may take; longer only if the machine is in trouble.
    private static final Duration KILL_LIMIT = Duration.ofSeconds(5);

    private boolean closed;

    /// What the children run.
    ///
    /// @param openLimit how long they may take to be ready
    public record Launch(
            WorkerLauncher launcher,
            String hostConfig,
            String runner,
            Path modelFolder,
            Map<String, Object> runnerOptions,
            Duration openLimit) {}

    /// Starts all ranks, or none.
    ///
    /// @param news is called when a half wants a step
    public static ProcessWorkers open(WorkerSetup setup, Launch launch, Runnable news) {
        var group = new ProcessWorkers();
        try {
            for (int rank = 0; rank < setup.engine().worldSize(); rank++) {
                group.ranks.add(new Rank(rank, launch, news, setup.host().events()));
            }
            var ready = new ArrayList<Future<Handshakes>>();
            for (var rank : group.ranks) {
                ready.add(rank.thread.submit(() -> rank.setUp(setup, launch)));
            }
            for (int rank = 0; rank < ready.size(); rank++) {
                group.handshakes.add(
                        group.ranks
                                .get(rank)
                                .await(ready.get(rank), launch.openLimit().toNanos(), "start"));
            }
            return group;
        } catch (RuntimeException e) {
            group.close();
            throw e;
        }
    }

    @Override
    public List<Handshakes> handshakes() {
        return handshakes;
    }

    @Override
    public List<RankResult> execute(StepPlan plan) {
        var frame = encoder.encode(plan); // written by nobody any more when every rank has answered
        for (var rank : ranks) {
            rank.begin(frame);
        }
        results.clear();
        for (var rank : ranks) {
            results.add(rank.result(plan));
        }
        return results;
    }

    @Override
    public void close() {
        if (closed) {
            return;
        }
        closed = true;
        ranks.forEach(Rank::askToClose);
        var limit = Deadline.in(CLOSE_LIMIT);
        ranks.forEach(rank -> rank.close(limit));
    }

    /// One child, the thread that talks to it and the one that listens.
    private static final class Rank {
        private final int rank;
        private final WorkerLauncher.Link process;
        private final WorkerPipe frames;
        private final ExecutorService thread;
        private final RankResult result = new RankResult();
        private final WorkerReplies replies;
        private final Thread listener;

        /// A long plan on its way.
        private @Nullable Future<?> writing;

        Rank(int rank, Launch launch, Runnable news, EventSink events) {
            this.rank = rank;
            try {
                process = launch.launcher().launch(rank);
            } catch (IOException e) {
                throw new KvFerryException(
                        ErrorCode.UNAVAILABLE,
                        "cannot start the worker process of rank " + rank,
                        e);
            }
            frames =
                    new WorkerPipe(
                            new BufferedInputStream(process.in()),
                            new BufferedOutputStream(process.out()));
            replies = new WorkerReplies(frames, news, events);
            listener =
                    Thread.ofPlatform()
                            .daemon()
                            .name("kvferry-worker-news-" + rank)
                            .start(replies::listen);
            thread =
                    Executors.newSingleThreadExecutor(
                            Thread.ofPlatform().daemon().name("kvferry-worker-" + rank).factory());
        }

        Handshakes setUp(WorkerSetup setup, Launch launch)
                throws IOException, InterruptedException {
            var out = new WireWriter();
            out.string(launch.hostConfig()).i32(rank).string(launch.runner());
            out.string(launch.modelFolder().toString());
            SetupCodec.json(out, launch.runnerOptions());
            SetupCodec.write(out, setup.engine());
            out.i32(setup.encoderRows());
            connector(out, setup.kv().map(WorkerSetup.Connector::config));
            connector(out, setup.ec().map(WorkerSetup.Connector::config));
            frames.send(WorkerPipe.SETUP, out);
            return Handshakes.read(replies.expect(WorkerPipe.READY));
        }

        private static void connector(WireWriter out, Optional<ConnectorConfig> config) {
            out.bool(config.isPresent());
            config.ifPresent(c -> SetupCodec.write(out, c));
        }

        /// Sends the plan of a step.
        void begin(WireWriter plan) {
            writing = null;
            if (plan.size() > WRITTEN_AT_ONCE) {
                Callable<Boolean> write =
                        () -> {
                            frames.send(WorkerPipe.STEP, plan);
                            return true;
                        };
                writing = thread.submit(write);
                return;
            }
            try {
                frames.send(WorkerPipe.STEP, plan);
            } catch (IOException e) {
                throw gone("begin a step", e);
            }
        }

        /// Waits for the rank's result of the step. A rank that exceeds the limit is killed.
        RankResult result(StepPlan plan) {
            var pending = writing;
            if (pending != null) {
                await(pending, plan.limit().remainingNanos(), "begin step " + plan.number());
            }
            try {
                var reply = replies.expect(WorkerPipe.RESULT, plan.limit());
                ResultCodec.read(reply, result, rank, plan.number(), plan.items().size());
                return result;
            } catch (TimeoutException e) {
                throw late("finish step " + plan.number(), e);
            } catch (InterruptedException e) {
                throw interrupted("finish step " + plan.number(), e);
            } catch (KvFerryException e) {
                throw e;
            } catch (IOException | RuntimeException e) {
                throw gone("finish step " + plan.number(), e);
            }
        }

        /// Waits for the rank's thread; a rank that is late is killed, which also ends the thread's
        /// wait or write.
        <T> T await(Future<T> answer, long nanos, String what) {
            try {
                return answer.get(Math.max(1, nanos), TimeUnit.NANOSECONDS);
            } catch (TimeoutException e) {
                throw late(what, e);
            } catch (ExecutionException e) {
                if (e.getCause() instanceof KvFerryException coded) {
                    throw coded;
                }
                throw gone(what, e.getCause() == null ? e : e.getCause());
            } catch (InterruptedException e) {
                throw interrupted(what, e);
            }
        }

        private KvFerryException late(String what, TimeoutException e) {
            process.kill();
            return new KvFerryException(
                    ErrorCode.TIMEOUT,
                    "the worker process of rank " + rank + " did not " + what + " in time; killed",
                    e);
        }

        private KvFerryException gone(String what, Throwable e) {
            return new KvFerryException(
                    ErrorCode.PEER_LOST,
                    "the worker process of rank "
                            + rank
                            + " ("
                            + process
                            + ") is gone, it did not "
                            + what
                            + ": "
                            + e,
                    e);
        }

        private KvFerryException interrupted(String what, InterruptedException e) {
            Thread.currentThread().interrupt();
            return new KvFerryException(
                    ErrorCode.CANCELLED, "interrupted while rank " + rank + " was to " + what, e);
        }

        void askToClose() {
            thread.execute(() -> {
                try {
                    frames.send(WorkerPipe.CLOSE, new WireWriter());
                } catch (IOException e) {
                    process.kill(); // it cannot be asked any more
                }
            });
            thread.shutdown();
        }

        void close(Deadline limit) {
            try {
                if (!process.awaitEnd(limit.remaining())) {
                    process.kill();
                    process.awaitEnd(KILL_LIMIT);
                }
                listener.join(KILL_LIMIT); // what it said last comes before what others say
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                process.kill();
            }
            thread.shutdownNow();
        }
    }
}
