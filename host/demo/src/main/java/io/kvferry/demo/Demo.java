// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import io.kvferry.serving.EngineSettings;
import io.kvferry.serving.cli.MakeModelCommand;
import io.kvferry.serving.cli.Progress;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.files.FileTrouble;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.ReentrantLock;

/// The demo: a reference run in this process, the same conversations through P, D and router, and
/// the comparison.
///
/// The children are stopped and the working folder is deleted (unless kept) on return, on an
/// exception, and, by a shutdown hook, on a signal. A child also ends by itself when this process
/// is killed.
public final class Demo {
    private static final Logger LOG = LoggerFactory.getLogger(Demo.class);
    private static final int ANSWER_TOKENS = 24;
    private static final int BLOCKS = 1024;
    private static final int USERS = 2;

    /// Suffix of the names of engines that replaced killed ones.
    private static final String SECOND_LIFE = "-again";

    private final Settings settings;
    private final Progress progress;
    private final AtomicReference<Cluster> cluster = new AtomicReference<>();
    private final ReentrantLock cleaning = new ReentrantLock();
    private volatile boolean interrupted;

    /// @param runner name of the model runner
    /// @param model model folder; without one the tiny model is made under `home`, if it is not
    ///   there yet
    /// @param home where the tiny model is kept
    /// @param first a connector to stand before DiskConnector in the MultiConnector
    /// @param mooncake folder of Mooncake's programs, where the store is a Mooncake cluster
    /// @param master whether the store of ours is two owners that a master lists
    /// @param pluginFolder where plugins are searched beside the class path
    /// @param keep whether the working folder (disk cache, logs) stays
    public record Settings(
            String runner,
            Optional<Path> model,
            Path home,
            Optional<String> first,
            Optional<Path> mooncake,
            boolean master,
            Optional<Path> pluginFolder,
            boolean keep) {}

    /// @param progress receives what the demo is doing
    public Demo(Settings settings, Progress progress) {
        this.settings = settings;
        this.progress = progress;
    }

    /// Runs it.
    ///
    /// @throws KvFerryException when a part cannot be started
    /// @throws InterruptedException when a signal ended it
    public DemoReport run() throws InterruptedException {
        var work = WorkFolder.create("kvferry-demo");
        var hook =
                new Thread(
                        () -> {
                            interrupted = true;
                            cleanUp(work);
                        },
                        "kvferry-demo-cleanup");
        Runtime.getRuntime().addShutdownHook(hook);
        try {
            var report = run(work);
            throwIfInterrupted();
            return report;
        } catch (IOException e) {
            throwIfInterrupted();
            throw FileTrouble.exception("cannot find a free port", e);
        } catch (RuntimeException e) {
            throwIfInterrupted(); // a consequence of stopping the children
            throw e;
        } finally {
            cleanUp(work);
            removeHook(hook);
        }
    }

    private void throwIfInterrupted() throws InterruptedException {
        if (interrupted) {
            throw new InterruptedException();
        }
    }

    private static void removeHook(Thread hook) {
        try {
            Runtime.getRuntime().removeShutdownHook(hook);
        } catch (IllegalStateException e) {
            LOG.debug("the process is ending already: {}", e.toString());
        }
    }

    private DemoReport run(WorkFolder work) throws InterruptedException, IOException {
        var model = settings.model().orElseGet(this::tinyModel);
        progress.phase("starting prefill, decode and router; computing the reference meanwhile");
        try (var threads = Executors.newVirtualThreadPerTaskExecutor()) {
            var started = threads.submit(() -> start(work, model));
            var reference =
                    EngineSettings.of(settings.runner(), model)
                            .withBlocks(16, BLOCKS)
                            .withPluginFolder(settings.pluginFolder());
            var turns =
                    ReferenceRun.of(
                            reference,
                            Conversations.bundled(),
                            ANSWER_TOKENS,
                            unlessFailed(started, progress));
            var running = LoadRun.get(started);
            var figures = new LinkedHashMap<String, InstanceFigures>();
            var samples = send(running, turns, "", figures);
            if (running.hasOwner()) {
                progress.phase("killing the engines; the store stays, and others are started");
                running.restartEngines();
                samples.addAll(send(running, turns, SECOND_LIFE, figures));
            }
            return new DemoReport(samples, figures);
        }
    }

    /// Progress of work whose result is not needed if `other` fails: ends it with that failure.
    static Progress unlessFailed(Future<?> other, Progress progress) {
        return new Progress() {
            @Override
            public void phase(String what) {
                progress.phase(what);
            }

            @Override
            public void advance(int done, int total) {
                if (other.state() == Future.State.FAILED) {
                    throw LoadRun.failure(other.exceptionNow());
                }
                progress.advance(done, total);
            }
        };
    }

    /// Sends all prompts through the router, then reads the engines' metrics.
    ///
    /// @param life suffix of the engines' names
    private List<Sample> send(
            Cluster running, List<Turn> turns, String life, Map<String, InstanceFigures> figures)
            throws InterruptedException {
        progress.phase("sending " + turns.size() + " prompts through " + running.router());
        var done = new AtomicInteger();
        var samples =
                LoadRun.run(
                        running.router(),
                        turns,
                        USERS,
                        _ -> progress.advance(done.incrementAndGet(), turns.size()));
        addFigures(running, life, figures);
        return new ArrayList<>(samples);
    }

    private Cluster start(WorkFolder work, Path model) throws InterruptedException, IOException {
        work.make(folder -> {
            var plan =
                    new ClusterPlan(
                            settings.runner(),
                            model,
                            settings.first(),
                            settings.mooncake(),
                            settings.master(),
                            settings.pluginFolder(),
                            1,
                            Files.createDirectory(folder.resolve("disk")),
                            folder,
                            BLOCKS);
            cluster.set(new Cluster(plan)); // a signal ends it, however far it is
        });
        var starting = cluster.get();
        starting.bringUp();
        return starting;
    }

    private Path tinyModel() {
        var folder = settings.home().resolve("tiny-llama-" + MakeModelCommand.DEFAULT_SEED);
        if (!Files.isDirectory(folder)) {
            progress.phase("making the tiny model in " + folder);
            MakeModelCommand.makeDefault(folder);
        }
        return folder;
    }

    private static void addFigures(
            Cluster running, String life, Map<String, InstanceFigures> figures)
            throws InterruptedException {
        for (var member : running.members()) {
            if (!member.name().equals("router") && !member.isOfStore()) {
                try {
                    figures.put(
                            member.name() + life,
                            InstanceFigures.parse(running.metrics(member.name())));
                } catch (IOException e) {
                    throw new KvFerryException(
                            ErrorCode.PEER_LOST, member.name() + " does not answer: " + e, e);
                }
            }
        }
    }

    /// Done once. A second caller waits: the process ends when the hook of a signal does.
    private void cleanUp(WorkFolder work) {
        cleaning.lock();
        try {
            if (!work.close()) {
                return;
            }
            var running = cluster.get();
            if (running != null) {
                running.close();
            }
            if (settings.keep()) {
                progress.phase("kept " + work);
            } else {
                work.delete();
            }
        } finally {
            cleaning.unlock();
        }
    }
}
