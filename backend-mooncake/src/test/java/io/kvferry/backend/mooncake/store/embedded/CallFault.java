// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.toolkit.disk.FaultInjectingCalls;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/// Makes one kind of file call fail or hang.
final class CallFault implements FaultInjectingCalls.Hook {
    private volatile String call = "";
    private volatile int answer;
    private volatile CountDownLatch held = new CountDownLatch(0);
    private final AtomicInteger skip = new AtomicInteger();
    private volatile boolean once;

    @Override
    public int before(String name, long number) {
        if (!name.equals(call)) {
            return 0;
        }
        awaitRelease();
        if (skip.getAndDecrement() > 0) {
            return 0;
        }
        int rc = answer;
        if (once) {
            answer = 0;
        }
        return rc;
    }

    private void awaitRelease() {
        try {
            if (!held.await(120, TimeUnit.SECONDS)) {
                throw new IllegalStateException("held for too long");
            }
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    /// From now on the calls of a name answer so; 0 goes on.
    void fail(String name, int code) {
        once = false;
        answer = code;
        skip.set(0);
        call = name;
    }

    /// The `nth` call of a name from now on answers so, and no other.
    void failOnce(String name, int nth, int code) {
        call = "";
        once = true;
        answer = code;
        skip.set(nth);
        call = name;
    }

    /// The calls of a name wait for the latch.
    void hold(String name, CountDownLatch latch) {
        fail(name, 0);
        held = latch;
    }
}
