// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.plane.Placement;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.spi.Deadline;

import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;

/// Every fourth transfer is given up by one side within three milliseconds.
final class BreakingPlane implements DataPlane {
    private final DataPlane real;
    private final Random random;

    BreakingPlane(DataPlane real, long seed) {
        this.real = real;
        this.random = new Random(seed);
    }

    private void perhaps(Runnable breaks) {
        int when;
        synchronized (random) {
            when = random.nextInt(4) == 0 ? random.nextInt(3_000) : -1;
        }
        if (when >= 0) {
            Thread.ofVirtual()
                    .start(() -> {
                        LockSupport.parkNanos(TimeUnit.MICROSECONDS.toNanos(when));
                        breaks.run();
                    });
        }
    }

    @Override
    public String kind() {
        return real.kind();
    }

    @Override
    public String address() {
        return real.address();
    }

    @Override
    public Window receive(Grant grant, Placement target, Deadline deadline, Consumer<Outcome> end) {
        var window = real.receive(grant, target, deadline, end);
        perhaps(window::withdraw);
        return window;
    }

    @Override
    public Sending send(
            String address,
            Grant grant,
            Placement source,
            Deadline deadline,
            Consumer<Outcome> end) {
        var sending = real.send(address, grant, source, deadline, end);
        perhaps(sending::abort);
        return sending;
    }

    @Override
    public void close() {
        real.close();
    }
}
