// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.testkit;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferBackendProvider;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.tck.memory.MemoryBackendProvider;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

/// The in-memory backend with a gate in front of each read: while it is closed, reads that were
/// accepted neither run nor let themselves be stopped, as on a network that has the data already.
public final class GatedBackend {
    private final TransferBackendProvider provider = new MemoryBackendProvider();
    private final AtomicInteger waiting = new AtomicInteger();
    private CompletableFuture<Void> gate = CompletableFuture.completedFuture(null);
    public volatile boolean failing;

    /// Whether no thread can be had for a read.
    public volatile boolean withoutThreads;

    public TransferBackendProvider provider() {
        return provider;
    }

    public void close() {
        gate = new CompletableFuture<>();
    }

    public void open() {
        gate.complete(null);
    }

    /// Steps the engine until a read waits at the gate.
    public void awaitWaiting(TestEngine engine) {
        var limit = Deadline.in(TestEngine.SOON);
        while (waiting.get() == 0) {
            assertThat(limit.passed()).as("no read came").isFalse();
            LockSupport.parkNanos(1_000_000);
            engine.step();
        }
    }

    public TransferBackend around(TransferBackend backend) {
        return (TransferBackend)
                Proxy.newProxyInstance(
                        getClass().getClassLoader(),
                        new Class<?>[] {TransferBackend.class},
                        (_, method, arguments) -> {
                            if (method.getName().equals("submit")) {
                                if (withoutThreads) {
                                    throw new OutOfMemoryError("unable to create native thread");
                                }
                                if (failing) {
                                    return broken();
                                }
                                if (!gate.isDone()) {
                                    return gated(() -> call(backend, method, arguments));
                                }
                            }
                            return call(backend, method, arguments);
                        });
    }

    private static Object call(
            TransferBackend backend, java.lang.reflect.Method method, Object[] arguments) {
        try {
            return method.invoke(backend, arguments);
        } catch (InvocationTargetException e) {
            if (e.getCause() instanceof RuntimeException cause) {
                throw cause;
            }
            throw new AssertionError(e.getCause());
        } catch (IllegalAccessException e) {
            throw new AssertionError(e);
        }
    }

    private static Transfer broken() {
        return new Later(
                CompletableFuture.completedFuture(
                        new TransferOutcome.Failed(new Failure(ErrorCode.IO, "the wire broke"))),
                CompletableFuture.completedFuture(null));
    }

    private interface Submit {
        Object run();
    }

    private Transfer gated(Submit submit) {
        waiting.incrementAndGet();
        var begun = gate.thenApply(_ -> (Transfer) submit.run());
        return new Later(
                begun.thenCompose(Transfer::completion), begun.thenCompose(Transfer::quiesced));
    }

    private record Later(
            CompletionStage<TransferOutcome> completion, CompletionStage<Void> quiesced)
            implements Transfer {

        @Override
        public Optional<TransferOutcome> poll() {
            return Optional.empty();
        }

        @Override
        public boolean cancel() {
            return false;
        }
    }
}
