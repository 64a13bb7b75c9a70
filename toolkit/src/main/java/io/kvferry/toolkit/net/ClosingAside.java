// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import java.util.concurrent.ThreadFactory;

/// Closes connections on separate threads, because closing may block and the caller serves other
/// connections. If no thread can be started, closes on the caller's thread.
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
