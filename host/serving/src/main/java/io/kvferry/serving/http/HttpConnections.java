// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.netty.channel.Channel;

import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.locks.ReentrantLock;

/// The open connections of a service, and the memory that request bodies take.
///
/// Threading: any thread.
final class HttpConnections {
    private final HttpLimits limits;
    private final ReentrantLock lock = new ReentrantLock();
    private final Set<Channel> open = new HashSet<>();

    /// Those without a request, the longest-waiting first.
    private final Set<Channel> waiting = new LinkedHashSet<>();

    private long bodyBytes;
    private boolean closed;

    HttpConnections(HttpLimits limits) {
        this.limits = limits;
    }

    /// A connection was accepted. At the limit, one that waits for a request makes room for it.
    ///
    /// @return false when there is no room
    boolean add(Channel channel) {
        Optional<Channel> evicted = Optional.empty();
        lock.lock();
        try {
            if (closed) {
                return false;
            }
            if (open.size() >= limits.maxConnections()) {
                evicted = waiting.stream().findFirst();
                if (evicted.isEmpty()) {
                    return false;
                }
                waiting.remove(evicted.get());
                open.remove(evicted.get());
            }
            open.add(channel);
            waiting.add(channel);
        } finally {
            lock.unlock();
        }
        evicted.ifPresent(Channel::close);
        return true;
    }

    void remove(Channel channel) {
        lock.lock();
        try {
            open.remove(channel);
            waiting.remove(channel);
        } finally {
            lock.unlock();
        }
    }

    /// It has a request from now on, or waits for one.
    void setWaiting(Channel channel, boolean waits) {
        lock.lock();
        try {
            if (!waits) {
                waiting.remove(channel);
            } else if (open.contains(channel)) {
                waiting.add(channel);
            }
        } finally {
            lock.unlock();
        }
    }

    /// Takes memory for `bytes` more of a body.
    ///
    /// @return false when there is none left
    boolean reserve(int bytes) {
        lock.lock();
        try {
            if (bodyBytes + bytes > limits.maxBodyMemory()) {
                return false;
            }
            bodyBytes += bytes;
            return true;
        } finally {
            lock.unlock();
        }
    }

    void release(int bytes) {
        lock.lock();
        try {
            bodyBytes -= bytes;
        } finally {
            lock.unlock();
        }
    }

    /// Connections that are open.
    int count() {
        lock.lock();
        try {
            return open.size();
        } finally {
            lock.unlock();
        }
    }

    /// Closes all connections; none can be added afterwards.
    void closeAll() {
        List<Channel> all;
        lock.lock();
        try {
            closed = true;
            all = List.copyOf(open);
        } finally {
            lock.unlock();
        }
        all.forEach(Channel::close);
    }
}
