// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.recovery;

import java.util.concurrent.locks.ReentrantLock;

/// A closing that every caller awaits: the first runs it, those that come meanwhile return when it
/// has ended, and later ones at once. After a failure, which the caller that ran it sees, the next
/// caller runs it again; so its steps can be repeated.
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
