// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.toolkit.disk.FileCalls;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/// Real file calls, one kind of which can be made to fail or to hang.
final class BentFileCalls {
    private final FileCalls bent;
    private volatile String call = "";
    private volatile int answer;
    private volatile CountDownLatch held = new CountDownLatch(0);
    private final AtomicInteger skip = new AtomicInteger();
    private volatile boolean once;

    BentFileCalls(FileCalls real) {
        bent =
                (FileCalls)
                        Proxy.newProxyInstance(
                                FileCalls.class.getClassLoader(),
                                new Class<?>[] {FileCalls.class},
                                (_, method, arguments) -> {
                                    int rc = before(method.getName());
                                    if (rc == 0 || method.getName().equals("close")) {
                                        try {
                                            Object done = method.invoke(real, arguments);
                                            return rc == 0 ? done : (Object) rc;
                                        } catch (InvocationTargetException e) {
                                            throw e.getCause();
                                        }
                                    }
                                    return method.getReturnType() == long.class
                                            ? (Object) (long) rc
                                            : (Object) rc;
                                });
    }

    FileCalls calls() {
        return bent;
    }

    private int before(String name) throws InterruptedException {
        if (!name.equals(call)) {
            return 0;
        }
        if (!held.await(120, TimeUnit.SECONDS)) {
            throw new IllegalStateException("held for too long");
        }
        if (skip.getAndDecrement() > 0) {
            return 0;
        }
        int rc = answer;
        if (once) {
            answer = 0;
        }
        return rc;
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
