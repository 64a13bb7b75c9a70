// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.engine.RequestHandle;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.locks.ReentrantLock;

/// Prefill requests by the token that the router chose for them. With the token the router releases
/// the blocks that a request holds when its decode request has failed. The oldest entries are
/// removed first; their holds end at their deadline.
///
/// Threading: any thread.
final class HeldRequests {
    /// The header that carries the token.
    static final String HEADER = "X-Kvferry-Hold";

    private static final int REMEMBERED = 16_384;

    private final ReentrantLock lock = new ReentrantLock();

    /// Empty for a token that was released before its request arrived.
    private final Map<String, Optional<RequestHandle>> byToken = new LinkedHashMap<>();

    void add(String token, RequestHandle handle) {
        if (swap(token, Optional.of(handle)).filter(Optional::isEmpty).isPresent()) {
            handle.release();
        }
    }

    /// Releases the blocks that the request holds and aborts it if it still runs. A request that
    /// arrives later is released on arrival.
    ///
    /// @return whether a request with this token had arrived
    boolean release(String token) {
        var handle = swap(token, Optional.empty()).flatMap(known -> known);
        handle.ifPresent(RequestHandle::release);
        return handle.isPresent();
    }

    private Optional<Optional<RequestHandle>> swap(String token, Optional<RequestHandle> now) {
        lock.lock();
        try {
            var before = byToken.remove(token);
            byToken.put(token, now);
            if (byToken.size() > REMEMBERED) {
                byToken.remove(byToken.keySet().iterator().next());
            }
            return Optional.ofNullable(before);
        } finally {
            lock.unlock();
        }
    }
}
