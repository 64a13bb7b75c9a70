// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferBackend.PeerState;
import io.kvferry.spi.transfer.TransferBackendProvider;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;
import io.kvferry.tck.faults.FaultPlan.Fault;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;

/// Wraps a transfer-backend provider so that what it opens misbehaves on a [FaultPlan]: submits are
/// refused with BACKPRESSURE, transfers fail, end late or never, notifications come twice, host
/// memory gets a wrong byte.
public final class FaultyBackend {
    private static final Executor LATER =
            CompletableFuture.delayedExecutor(20, TimeUnit.MILLISECONDS);

    private FaultyBackend() {}

    public static TransferBackendProvider wrap(TransferBackendProvider provider, FaultPlan plan) {
        return Interceptor.wrap(
                TransferBackendProvider.class,
                provider,
                (method, arguments, proceed) -> {
                    if (method.getName().equals("open")
                            && arguments[0] instanceof BackendContext context) {
                        var sink = twice(context.sink(), plan);
                        var opened =
                                provider.open(
                                        new BackendContext(
                                                context.self(),
                                                context.options(),
                                                sink,
                                                context.events()));
                        return backend(opened, plan);
                    }
                    return proceed.run();
                });
    }

    private static BackendContext.Sink twice(BackendContext.Sink sink, FaultPlan plan) {
        return new BackendContext.Sink() {
            @Override
            public void notified(PeerId from, byte[] notification) {
                sink.notified(from, notification);
                if (plan.strikes(Fault.DUPLICATE)) {
                    sink.notified(from, notification);
                }
            }

            @Override
            public void peerChanged(PeerId peer, PeerState state, String why) {
                sink.peerChanged(peer, state, why);
            }
        };
    }

    private static TransferBackend backend(TransferBackend opened, FaultPlan plan) {
        var memory = new CopyOnWriteArrayList<MemorySegment>();
        return Interceptor.wrap(
                TransferBackend.class,
                opened,
                (method, arguments, proceed) -> {
                    if (method.getName().equals("register")
                            && arguments[0] instanceof MemoryRange.Host(MemorySegment host)) {
                        memory.add(host);
                    }
                    if (!method.getName().equals("submit")
                            || !(arguments[0] instanceof TransferRequest request)) {
                        return proceed.run();
                    }
                    if (plan.strikes(Fault.THROW)) {
                        throw new KvFerryException(
                                ErrorCode.BACKPRESSURE, "injected: the queue is full");
                    }
                    return proceed.run() instanceof Transfer transfer
                            ? new FaultyTransfer(transfer, request, plan, memory)
                            : Optional.empty();
                });
    }

    /// A transfer whose outcome may be another than the real one; it is quiesced when the real one
    /// is.
    private static final class FaultyTransfer implements Transfer {
        private final Transfer real;
        private final CompletableFuture<TransferOutcome> outcome = new CompletableFuture<>();

        FaultyTransfer(
                Transfer real,
                TransferRequest request,
                FaultPlan plan,
                List<MemorySegment> memory) {
            this.real = real;
            var unused =
                    real.completion()
                            .thenAccept(end -> {
                                if (plan.strikes(Fault.LOSE)) {
                                    return;
                                }
                                var told = change(end, request, plan, memory);
                                if (plan.strikes(Fault.DELAY)) {
                                    LATER.execute(() -> outcome.complete(told));
                                } else {
                                    outcome.complete(told);
                                }
                            });
        }

        private static TransferOutcome change(
                TransferOutcome end,
                TransferRequest request,
                FaultPlan plan,
                List<MemorySegment> memory) {
            if (!(end instanceof TransferOutcome.Done)) {
                return end;
            }
            if (plan.strikes(Fault.FAIL)) {
                return new TransferOutcome.Failed(new Failure(ErrorCode.IO, "injected failure"));
            }
            if (plan.strikes(Fault.TRUNCATE)) {
                var moved = new boolean[request.local().descriptors().count()];
                Arrays.fill(moved, 0, moved.length / 2, true);
                return new TransferOutcome.Failed(
                        new Failure(ErrorCode.IO, "injected short transfer"), moved);
            }
            if (!memory.isEmpty() && plan.strikes(Fault.CORRUPT)) {
                flip(request, memory);
            }
            return end;
        }

        /// Damages the first byte of the first local range (where a READ ends and a WRITE starts).
        private static void flip(TransferRequest request, List<MemorySegment> memory) {
            long at = request.local().descriptors().address(0);
            for (var segment : memory) {
                if (at >= segment.address() && at < segment.address() + segment.byteSize()) {
                    long offset = at - segment.address();
                    segment.set(
                            ValueLayout.JAVA_BYTE,
                            offset,
                            (byte) ~segment.get(ValueLayout.JAVA_BYTE, offset));
                    return;
                }
            }
        }

        @Override
        public CompletionStage<TransferOutcome> completion() {
            return outcome.minimalCompletionStage();
        }

        @Override
        public CompletionStage<Void> quiesced() {
            return outcome.thenCombine(real.quiesced(), (_, nothing) -> nothing)
                    .minimalCompletionStage();
        }

        @Override
        public Optional<TransferOutcome> poll() {
            return outcome.isDone() ? Optional.of(outcome.join()) : Optional.empty();
        }

        @Override
        public boolean cancel() {
            return real.cancel();
        }
    }
}
