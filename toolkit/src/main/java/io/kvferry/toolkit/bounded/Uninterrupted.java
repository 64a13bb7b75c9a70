// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import io.kvferry.spi.Deadline;

import java.io.IOException;
import java.nio.channels.ClosedByInterruptException;
import java.time.Duration;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.TimeUnit;

/// Waits and file work that an interrupt does not end; the thread is interrupted afterwards.
///
/// Threading: any thread.
public final class Uninterrupted {
    private Uninterrupted() {}

    /// A wait with a timeout; returns true when the condition was met. Called again after an
    /// interrupt.
    @FunctionalInterface
    public interface Wait {
        boolean await(long nanos) throws InterruptedException;
    }

    /// A wait for something that ends by itself. Called again after an interrupt.
    @FunctionalInterface
    public interface Step<E extends Exception> {
        void run() throws InterruptedException, E;
    }

    /// Work on files. Called again after an interrupt, which closes the channels in use; so it
    /// leaves nothing behind when it fails.
    @FunctionalInterface
    public interface FileWork<T> {
        T run() throws IOException;
    }

    /// Returns false when the deadline passed first.
    public static boolean await(Wait wait, Deadline deadline) {
        boolean interrupted = false;
        try {
            while (true) {
                try {
                    return wait.await(Math.max(0, deadline.remainingNanos()));
                } catch (InterruptedException _) {
                    interrupted = true;
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /// Returns false when the timeout passed first.
    public static boolean await(Wait wait, Duration most) {
        return await(wait, Deadline.in(most));
    }

    /// Whether the thread ended within so long.
    public static boolean join(Thread thread, Duration most) {
        return await(nanos -> thread.join(Duration.ofNanos(nanos)), most);
    }

    /// Whether all threads ended within so long, after a shutdown.
    public static boolean awaitTermination(ExecutorService threads, Duration most) {
        return await(nanos -> threads.awaitTermination(nanos, TimeUnit.NANOSECONDS), most);
    }

    /// A wait that needs no limit here.
    public static <E extends Exception> void run(Step<E> step) throws E {
        boolean interrupted = false;
        try {
            while (true) {
                try {
                    step.run();
                    return;
                } catch (InterruptedException _) {
                    interrupted = true;
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /// The result of file work, whether or not the thread is interrupted.
    public static <T> T files(FileWork<T> work) throws IOException {
        boolean interrupted = Thread.interrupted();
        try {
            while (true) {
                try {
                    return work.run();
                } catch (ClosedByInterruptException _) {
                    interrupted |= Thread.interrupted();
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
