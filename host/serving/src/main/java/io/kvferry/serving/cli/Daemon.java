// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import io.kvferry.serving.http.Json;
import io.kvferry.toolkit.bounded.Uninterrupted;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.io.PrintWriter;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/// The life of a command that serves until it is told to stop: by SIGTERM or SIGINT, or by the end
/// of standard input.
///
/// Threading: one thread constructs it, announces and closes.
final class Daemon implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Daemon.class);

    /// Over the grace time of running requests: for engine and connectors to close.
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(20);

    private final boolean json;
    private final CountDownLatch stop = new CountDownLatch(1);
    private final CountDownLatch closed = new CountDownLatch(1);

    /// For a server that lets running requests end for `--stop-grace` before it closes.
    Daemon(HttpOptions options) {
        this(
                options.json,
                options.stopWithStdin,
                Duration.ofSeconds(options.stopGraceSeconds).plus(CLOSE_LIMIT));
    }

    /// From here on a signal waits for [#close].
    ///
    /// @param json whether the ready line is JSON
    /// @param closeLimit how long a signal waits
    Daemon(boolean json, boolean stopWithStdin, Duration closeLimit) {
        this.json = json;
        // The virtual machine waits for its hooks, so this is where a signal gets its orderly end.
        Runtime.getRuntime()
                .addShutdownHook(
                        new Thread(
                                () -> {
                                    stop.countDown();
                                    awaitClosed(closeLimit);
                                },
                                "kvferry-shutdown"));
        if (stopWithStdin) {
            Thread.ofPlatform()
                    .daemon()
                    .name("kvferry-stdin")
                    .start(() -> {
                        drainStdin();
                        stop.countDown();
                    });
        }
    }

    /// Prints that the service is ready, and returns when it is to stop.
    void announceAndWait(PrintWriter out, String ready, Map<String, Object> facts) {
        out.println(json ? Json.text(Json.tree(facts)) : ready);
        out.flush();
        Uninterrupted.run(stop::await);
    }

    private void awaitClosed(Duration limit) {
        try {
            if (!closed.await(limit.toMillis(), TimeUnit.MILLISECONDS)) {
                LOG.warn("not closed within {}; ending anyway", limit);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static void drainStdin() {
        try {
            System.in.skipNBytes(Long.MAX_VALUE);
        } catch (IOException e) {
            LOG.debug(
                    "standard input ended: {}",
                    e.toString()); // end of file or a broken pipe: the parent has ended
        }
    }

    /// Releases a signal handler that waits: everything is closed.
    @Override
    public void close() {
        closed.countDown();
    }
}
