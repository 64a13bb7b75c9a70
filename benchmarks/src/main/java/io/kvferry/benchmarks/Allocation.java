// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks;

import com.sun.management.ThreadMXBean;

import java.lang.management.ManagementFactory;

/// Bytes allocated on the Java heap.
public final class Allocation {
    private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

    private Allocation() {}

    /// By the calling thread since it started.
    public static long ofThisThread() {
        return THREADS.getCurrentThreadAllocatedBytes();
    }

    /// By all threads since the JVM started; counts helpers of the code under test too.
    public static long ofAllThreads() {
        return THREADS.getTotalThreadAllocatedBytes();
    }
}
