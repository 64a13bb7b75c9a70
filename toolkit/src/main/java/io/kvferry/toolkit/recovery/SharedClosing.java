// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.recovery;

import java.util.concurrent.locks.ReentrantLock;

/// A close operation shared by concurrent callers: the first caller runs it, callers that arrive
/// meanwhile wait for it, later ones return at once. If it fails, the caller that ran it gets the
/// exception and the next caller runs it again, so its steps must be repeatable.
///
/// Threading: any thread.
public final class SharedClosing {
    private final ReentrantLock running = new ReentrantLock();
    private boolean done;

    public void run(Runnable steps) {
        running.lock();
        try {
            if (!done) {
                steps.run();
                done = true;
            }
        } finally {
            running.unlock();
        }
    }
}
