// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import java.net.http.HttpClient;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;

/// A JDK [HttpClient] for the lifetime of a service. The JDK's client becomes unusable when its
/// selector thread runs out of memory or is interrupted, and then refuses every request; this class
/// replaces it.
///
/// Threading: any thread.
public final class LastingHttpClient implements AutoCloseable {
    private final Supplier<HttpClient> maker;
    private final ReentrantLock lock = new ReentrantLock();
    private volatile HttpClient client;
    private boolean closed;

    /// @param maker called now, and whenever the last client has ended
    public LastingHttpClient(Supplier<HttpClient> maker) {
        this.maker = maker;
        this.client = maker.get();
    }

    /// The client for the next request. Once this is closed, one that refuses it.
    ///
    /// @throws java.io.UncheckedIOException when a new one cannot be made, such as for lack of file
    ///   descriptors
    public HttpClient now() {
        HttpClient last = client;
        return last.isTerminated() ? replaced() : last;
    }

    private HttpClient replaced() {
        lock.lock();
        try {
            if (!closed && client.isTerminated()) {
                client = maker.get();
            }
            return client;
        } finally {
            lock.unlock();
        }
    }

    /// Cuts every exchange that is under way.
    @Override
    public void close() {
        lock.lock();
        try {
            closed = true;
            client.shutdownNow();
        } finally {
            lock.unlock();
        }
    }
}
