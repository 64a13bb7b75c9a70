// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.process;

import io.kvferry.engine.model.ModelSource;
import io.kvferry.engine.worker.CloseStack;
import io.kvferry.engine.worker.WorkerHost;
import io.kvferry.engine.worker.WorkerSetup;
import io.kvferry.engine.worker.rank.RankWorker;
import io.kvferry.spi.Failure;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/// A worker process: one rank, driven over its standard streams. Ends when they end, so it never
/// outlives its engine, and no sooner: Ctrl-C at a terminal reaches the workers too, but the engine
/// still has requests to finish and decides when its ranks close.
public final class WorkerMain {
    /// How long a signal waits for the engine; beyond any grace time that an engine gives requests.
    private static final Duration SIGNAL_LIMIT = Duration.ofSeconds(60);

    private final WorkerPipe frames;
    private final WireWriter out = new WireWriter(4096);

    /// Whether the engine has been asked for a step since its last one: once is enough.
    private final AtomicBoolean told = new AtomicBoolean();

    private final EventRelay events;
    private final WorkerHost host;

    private WorkerMain(WorkerPipe frames, WorkerHost host) {
        this.frames = frames;
        this.host = host;
        this.events = new EventRelay(frames);
    }

    /// Started by [ProcessWorkers], not by hand.
    public static void main(String[] args) throws IOException {
        var done = new CountDownLatch(1);
        Runtime.getRuntime()
                .addShutdownHook(new Thread(() -> awaitEnd(done), "kvferry-worker-signal"));
        try (var in = new BufferedInputStream(new FileInputStream(FileDescriptor.in));
                var out = new BufferedOutputStream(new FileOutputStream(FileDescriptor.out))) {
            // what plugins print must not run into the frames
            System.setOut(System.err);
            serve(in, out, WorkerHosts.find());
        } finally {
            done.countDown();
        }
        System.exit(0); // plugins may have left threads that are not daemons
    }

    /// Runs a worker until its engine closes it or ends.
    ///
    /// @param in the engine's output
    /// @param out the engine's input
    public static void serve(InputStream in, OutputStream out, WorkerHost host) throws IOException {
        new WorkerMain(new WorkerPipe(in, out), host).serve();
    }

    private static void awaitEnd(CountDownLatch done) {
        try {
            if (!done.await(SIGNAL_LIMIT.toSeconds(), TimeUnit.SECONDS)) {
                System.err.println("kvferry worker: the engine did not end; ending without it");
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void serve() throws IOException {
        events.start();
        var opened = new CloseStack();
        try (opened) {
            var worker = open(frames.expect(WorkerPipe.SETUP), opened);
            if (worker.isPresent()) {
                steps(worker.get());
            }
        } catch (EOFException e) {
            // the engine is gone: closing is all that is left to do
            System.err.println("kvferry worker: the engine is gone; closing");
        } finally {
            events.stop();
        }
    }

    private Optional<RankWorker> open(WireReader in, CloseStack opened) throws IOException {
        try {
            var worker = open(new Setup(in, host, events), opened);
            worker.handshakes().write(out.reset());
            frames.send(WorkerPipe.READY, out);
            return Optional.of(worker);
        } catch (RuntimeException
                | LinkageError e) { // goes to the engine, which fails to open with it
            var failure = Failure.of(e);
            frames.send(
                    WorkerPipe.FAILED,
                    out.reset().i32(failure.code().wire()).string(failure.message()));
            return Optional.empty();
        }
    }

    private RankWorker open(Setup setup, CloseStack opened) {
        var runner = setup.host.runner(setup.runner);
        var options =
                runner.options().read("options of runner " + setup.runner, setup.runnerOptions);
        var model = opened.push(runner.open(new ModelSource(Path.of(setup.folder), options)));
        return opened.push(RankWorker.open(setup.workerSetup(this::wake), model, setup.rank));
    }

    private void steps(RankWorker worker) throws IOException {
        var decoder = new StepDecoder();
        while (true) {
            var frame = frames.receive();
            if (frame.kind() == WorkerPipe.CLOSE) {
                return;
            }
            told.set(false); // what is due from now on may miss this step's report
            ResultCodec.write(out, worker.step(decoder.decode(frame.reader())));
            frames.send(WorkerPipe.RESULT, out);
        }
    }

    private void wake() {
        if (told.compareAndSet(false, true)) {
            try {
                frames.send(WorkerPipe.NEWS, new WireWriter());
            } catch (IOException e) {
                // the engine is gone; the step thread finds out by itself
            }
        }
    }

    /// The SETUP frame; [ProcessWorkers] writes it.
    private static final class Setup {
        private final WorkerHost host;
        private final int rank;
        private final String runner;
        private final String folder;
        private final Map<String, Object> runnerOptions;
        private final WireReader in;

        Setup(WireReader in, WorkerHost host, EventSink events) {
            this.in = in;
            this.host = host;
            host.configure(in.string(), events);
            rank = in.i32();
            runner = in.string();
            folder = in.string();
            runnerOptions = SetupCodec.map(in);
        }

        WorkerSetup workerSetup(Runnable wake) {
            var engine = SetupCodec.engine(in);
            int encoderRows = in.i32();
            var kv =
                    connector()
                            .map(c ->
                                    new WorkerSetup.Connector<>(
                                            host.kvConnector(c.connector()), c));
            var ec =
                    connector()
                            .map(c ->
                                    new WorkerSetup.Connector<>(
                                            host.ecConnector(c.connector()), c));
            in.end();
            return new WorkerSetup(
                    engine,
                    encoderRows,
                    kv,
                    ec,
                    host.services().with(host.services().events(), wake));
        }

        private Optional<ConnectorConfig> connector() {
            return in.bool() ? Optional.of(SetupCodec.config(in)) : Optional.empty();
        }
    }
}
