// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.backend.nccl.plane.PlaneClock;

import org.jspecify.annotations.Nullable;

import java.time.Duration;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.atomic.AtomicReference;

/// What all parts of one plane use: NCCL, the GPU, the thread that owns it, and timers.
///
/// @param name of the plane, for logs and threads
/// @param copiers make a thread for each copy
/// @param calling the communicator that the loop's thread is in a call of; null while in none
record Gpu(
        String name,
        NcclLibrary library,
        GpuDriver driver,
        NcclPlane.Limits limits,
        GpuLoop loop,
        PlaneClock clock,
        ThreadFactory copiers,
        AtomicReference<@Nullable Communicator> calling) {

    void post(Runnable work) {
        loop.post(work);
    }

    /// Runs a copy between blocks and a buffer, on a thread of its own.
    void copy(Runnable work) {
        copiers.newThread(work).start();
    }

    /// On the loop, after that time.
    Future<?> after(Duration time, Runnable work) {
        return clock.after(time, () -> post(work));
    }
}
