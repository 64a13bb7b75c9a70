// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.metadata;

import io.kvferry.backend.mooncake.te.internal.HostPort;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.LoopReport;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;

/// Keeps the document on the metadata server up to date. Changes in quick succession are published
/// together. A registration does not wait for publication, because TCP peers do not use the list of
/// buffers. Without a metadata server this does nothing.
public final class Publisher implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Publisher.class);
    private static final Duration PATIENCE = Duration.ofSeconds(5);
    private static final Duration RETRY = Duration.ofSeconds(1);
    private static final long DELAY_MILLIS = 1;

    private final SegmentDirectory directory;
    private final String segmentName;
    private final HostPort handshake;
    private final AtomicBoolean scheduled = new AtomicBoolean();
    private final ScheduledThreadPoolExecutor thread;

    public Publisher(SegmentDirectory directory, String segmentName, HostPort handshake) {
        this(
                directory,
                segmentName,
                handshake,
                Thread.ofPlatform().name("kvferry-te-publisher-" + segmentName).daemon().factory());
    }

    /// @param threads makes the one thread, now: a change must not wait for memory for it
    Publisher(
            SegmentDirectory directory,
            String segmentName,
            HostPort handshake,
            ThreadFactory threads) {
        this.directory = directory;
        this.segmentName = segmentName;
        this.handshake = handshake;
        this.thread = new ScheduledThreadPoolExecutor(1, threads);
        if (directory.published()) {
            thread.prestartCoreThread();
        }
    }

    /// Announces the engine.
    ///
    /// @throws KvFerryException when the metadata server cannot be reached or refuses
    public void start() {
        directory.announce(segmentName, handshake, Deadline.in(PATIENCE));
        directory.publish(segmentName, Deadline.in(PATIENCE));
    }

    public void changed() {
        if (directory.published() && scheduled.compareAndSet(false, true)) {
            schedule();
        }
    }

    private void schedule() {
        boolean done = false;
        try {
            var _ = thread.schedule(this::publish, DELAY_MILLIS, TimeUnit.MILLISECONDS);
            done = true;
        } catch (RejectedExecutionException e) {
            LOG.debug("{} is being withdrawn, its last change is not published", segmentName);
        } finally {
            if (!done) { // after an OutOfMemoryError the next change schedules it
                scheduled.set(false);
            }
        }
    }

    /// Peers must not keep the old document. Tried again by this thread, for there may be no memory
    /// to schedule it.
    private void publish() {
        while (!thread.isShutdown() && !isPublished()) {
            LockSupport.parkNanos(RETRY.toNanos());
        }
    }

    private boolean isPublished() {
        scheduled.set(false);
        try {
            directory.publish(segmentName, Deadline.in(PATIENCE));
            return true;
        } catch (RuntimeException | Error e) {
            LoopReport.WARN.log(LOG, "publishing {} failed, trying again", segmentName, e);
            return false;
        }
    }

    @Override
    public void close() {
        boolean interrupted = Thread.interrupted(); // or nothing could be withdrawn
        try {
            withdraw();
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private void withdraw() {
        thread.shutdownNow();
        try {
            if (thread.awaitTermination(PATIENCE.toMillis(), TimeUnit.MILLISECONDS)) {
                directory.withdraw(segmentName, Deadline.in(PATIENCE));
            }
        } catch (KvFerryException e) {
            LOG.warn(
                    "{} could not be withdrawn from the metadata server: {}",
                    segmentName,
                    e.getMessage());
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
