// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.Set;
import java.util.concurrent.locks.ReentrantLock;

/// The ids of the latest legs that a router sent, so that one which it sends again after a broken
/// connection is not run twice. The oldest are forgotten first.
///
/// Threading: any thread.
final class TakenLegs {
    /// The header with the id, which is new for each leg and the same when the leg is sent again.
    static final String HEADER = "X-Kvferry-Leg";

    private static final int REMEMBERED = 16_384;
    private static final int MAX_LENGTH = 64;

    private final ReentrantLock lock = new ReentrantLock();
    private final Set<String> taken = new LinkedHashSet<>();

    /// @throws HttpProblem 409 when a leg with this id was taken before
    void take(String id) {
        if (id.length() > MAX_LENGTH) {
            throw HttpProblem.badRequest(HEADER, HEADER + " is longer than " + MAX_LENGTH);
        }
        lock.lock();
        try {
            if (!taken.add(id)) {
                throw HttpProblem.of(
                        409, "duplicate", "this request was received before and is not run again");
            }
            if (taken.size() > REMEMBERED) {
                Iterator<String> oldest = taken.iterator();
                oldest.next();
                oldest.remove();
            }
        } finally {
            lock.unlock();
        }
    }
}
