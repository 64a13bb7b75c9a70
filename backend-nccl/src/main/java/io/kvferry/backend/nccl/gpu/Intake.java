// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;

import org.jspecify.annotations.Nullable;

/// Whether a plane takes new transfers and links: not when it is closed, not while a call of NCCL
/// or of the driver does not return, and not when too much waits for the GPU.
///
/// Threading: any thread.
final class Intake {
    private final String name;
    private final GpuLoop loop;
    private volatile boolean closed;
    private volatile @Nullable Failure hung;

    Intake(String name, GpuLoop loop) {
        this.name = name;
        this.loop = loop;
    }

    /// Why nothing new is taken; null when it is.
    @Nullable Failure refusal() {
        if (closed) {
            return closedFailure();
        }
        var since = hung;
        if (since == null && loop.isFull()) {
            return new Failure(ErrorCode.BACKPRESSURE, name + ": too much waits for the GPU");
        }
        return since;
    }

    void close() {
        closed = true;
    }

    boolean closed() {
        return closed;
    }

    Failure closedFailure() {
        return new Failure(ErrorCode.CLOSED, name + " is closed");
    }

    void hang(Failure why) {
        hung = why;
    }

    void resume() {
        hung = null;
    }

    /// Why work is refused while a call hangs; null when none does.
    @Nullable Failure hung() {
        return hung;
    }
}
