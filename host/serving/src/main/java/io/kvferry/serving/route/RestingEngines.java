// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Function;
import java.util.function.LongSupplier;

/// The engines behind one bootstrap server whose last hand-off failed. Each is skipped for a while
/// and then tried by one request; the pause grows with every failed trial in a row. Needed because
/// engines die, and because without a secret any host may register an engine that does not work.
///
/// Threading: any thread.
final class RestingEngines {
    private static final Logger LOG = LoggerFactory.getLogger(RestingEngines.class);
    private static final Duration FIRST_PAUSE = Duration.ofSeconds(5);
    private static final int MOST_DOUBLINGS = 6;

    private final LongSupplier nanoTime;
    private final ReentrantLock lock = new ReentrantLock();
    private final Map<String, Rest> resting = new HashMap<>();

    /// @param failures in a row: the first one, and those of trials. Requests that were under way
    ///   together fail together, and say no more than one of them
    /// @param until when the next request tries the engine
    /// @param tried whether one does meanwhile
    private record Rest(int failures, long until, boolean tried) {}

    RestingEngines(LongSupplier nanoTime) {
        this.nanoTime = nanoTime;
    }

    /// The engine that gets a request: the first in turn that has no rest or whose rest is over,
    /// and where there is none, the first: it may have recovered.
    ///
    /// @param engines at least one
    /// @param first whose turn it is
    <E> E choose(List<E> engines, int first, Function<E, String> name) {
        for (int i = 0; i < engines.size(); i++) {
            var engine = engines.get((first + i) % engines.size());
            if (admits(name.apply(engine))) {
                return engine;
            }
        }
        return engines.get(first);
    }

    /// Whether an engine gets a request now. The first request after its pause is a trial; the next
    /// one must wait until the trial has ended, or another pause is over.
    boolean admits(String engine) {
        lock.lock();
        try {
            var rest = resting.get(engine);
            if (rest == null) {
                return true;
            }
            if (nanoTime.getAsLong() - rest.until() < 0) {
                return false;
            }
            resting.put(engine, new Rest(rest.failures(), restFrom(rest.failures()), true));
            return true;
        } finally {
            lock.unlock();
        }
    }

    private long restFrom(int failures) {
        int doublings = Math.min(failures - 1, MOST_DOUBLINGS);
        return nanoTime.getAsLong() + (FIRST_PAUSE.toNanos() << doublings);
    }

    void failed(String engine) {
        lock.lock();
        try {
            var rest = resting.get(engine);
            if (rest != null && !rest.tried()) {
                return; // it was sent before the rest began, or there was no other engine
            }
            int failures = rest == null ? 1 : rest.failures() + 1;
            resting.put(engine, new Rest(failures, restFrom(failures), false));
            LOG.info("engine {}: hand-over failed, {} in a row", engine, failures);
        } finally {
            lock.unlock();
        }
    }

    void worked(String engine) {
        lock.lock();
        try {
            resting.remove(engine);
        } finally {
            lock.unlock();
        }
    }

    /// Engines that are skipped, including engines that may no longer be listed.
    int size() {
        lock.lock();
        try {
            return resting.size();
        } finally {
            lock.unlock();
        }
    }

    /// The others are not there any more.
    void keepOnly(Collection<String> engines) {
        lock.lock();
        try {
            resting.keySet().retainAll(engines);
        } finally {
            lock.unlock();
        }
    }
}
