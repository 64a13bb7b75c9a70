// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import java.util.concurrent.ThreadFactory;

/// Closes connections on threads of their own, since the caller keeps time for others and closing
/// may take long; on the caller's where none can be had: late for the others is better than never.
///
/// Threading: any thread.
public final class ClosingAside {
    private static final ThreadFactory THREADS = Thread.ofVirtual().name("kvferry-close").factory();

    private ClosingAside() {}

    public static void close(Runnable closing) {
        close(THREADS, closing);
    }

    static void close(ThreadFactory threads, Runnable closing) {
        try {
            threads.newThread(closing).start();
        } catch (RuntimeException | Error _) { // no memory for a thread
            closing.run();
        }
    }
}
