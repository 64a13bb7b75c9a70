// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.Closeable;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.ReentrantLock;

/// Aborts blocking operations whose result is no longer needed: a name lookup, a connect, a wait
/// for a response. Operations started afterwards are refused.
///
/// Threading: any thread.
public final class Cancellation {
    private static final Logger LOG = LoggerFactory.getLogger(Cancellation.class);

    private final ReentrantLock lock = new ReentrantLock();

    /// By identity: nothing that can be closed here has an `equals` of its own.
    private final List<Closeable> waits = new ArrayList<>(0);

    private volatile @Nullable ErrorCode reason;

    /// Registers a blocking operation.
    ///
    /// @param wait closed to abort the operation; closing it must not block
    /// @throws KvFerryException with the reason, if already cancelled
    public void begin(Closeable wait) {
        lock.lock();
        try {
            check();
            waits.add(wait);
        } finally {
            lock.unlock();
        }
    }

    /// Unregisters an operation. It will not be closed afterwards; if it is being closed, waits for
    /// that.
    public void end(Closeable wait) {
        lock.lock();
        try {
            waits.remove(wait);
        } finally {
            lock.unlock();
        }
    }

    /// @throws KvFerryException the reason, once cancelled
    public void check() {
        var why = reason;
        if (why != null) {
            throw new KvFerryException(why, "given up");
        }
    }

    /// Ends the waits. The first reason counts.
    public void cancel(ErrorCode why) {
        lock.lock();
        try {
            if (reason == null) {
                reason = why;
            }
            waits.forEach(Cancellation::close);
        } finally {
            lock.unlock();
        }
    }

    private static void close(Closeable wait) {
        try {
            wait.close();
        } catch (IOException e) {
            LOG.debug("what was given up could not be closed: {}", e.toString());
        }
    }
}
