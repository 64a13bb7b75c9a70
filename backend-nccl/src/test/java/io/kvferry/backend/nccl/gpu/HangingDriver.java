// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.backend.nccl.plane.PlaneRuns;

import java.lang.reflect.Proxy;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/// A driver of which one call of a stream does not return for a while.
public final class HangingDriver {
    private final GpuDriver real;
    private final String call;
    private final CountDownLatch hangs = new CountDownLatch(1);
    private final CountDownLatch released = new CountDownLatch(1);
    private final CountDownLatch closed = new CountDownLatch(1);
    private volatile boolean armed;

    /// @param call name of a method of [GpuDriver.Stream]
    public HangingDriver(GpuDriver real, String call) {
        this.real = real;
        this.call = call;
    }

    public GpuDriver driver() {
        return (GpuDriver)
                Proxy.newProxyInstance(
                        GpuDriver.class.getClassLoader(),
                        new Class<?>[] {GpuDriver.class},
                        (_, method, arguments) -> {
                            var made = method.invoke(real, arguments);
                            if (method.getName().equals("close")) {
                                closed.countDown();
                            }
                            return made instanceof GpuDriver.Stream stream ? over(stream) : made;
                        });
    }

    private GpuDriver.Stream over(GpuDriver.Stream stream) {
        return (GpuDriver.Stream)
                Proxy.newProxyInstance(
                        GpuDriver.class.getClassLoader(),
                        new Class<?>[] {GpuDriver.Stream.class},
                        (_, method, arguments) -> {
                            if (armed && method.getName().equals(call)) {
                                hangs.countDown();
                                await(released, "the test never released the call");
                            }
                            return method.invoke(stream, arguments);
                        });
    }

    /// From now on.
    public void hang() {
        armed = true;
    }

    public void awaitHang() {
        await(hangs, "the call never came");
    }

    void awaitClosed() {
        await(closed, "the driver was never closed");
    }

    boolean isClosed() {
        return closed.getCount() == 0;
    }

    boolean hangs() {
        return hangs.getCount() == 0;
    }

    public void release() {
        armed = false;
        released.countDown();
    }

    private static void await(CountDownLatch latch, String otherwise) {
        try {
            if (!latch.await(PlaneRuns.SOON.toSeconds(), TimeUnit.SECONDS)) {
                throw new AssertionError(otherwise);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new AssertionError(otherwise, e);
        }
    }
}
