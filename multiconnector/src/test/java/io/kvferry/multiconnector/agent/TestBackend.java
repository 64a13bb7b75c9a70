// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.ProvidedMemory;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Prepared;
import io.kvferry.spi.transfer.Registration;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferBackendProvider;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;
import io.kvferry.tck.memory.MemoryBackendProvider;

import java.lang.foreign.Arena;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;

/// The in-memory backend under another name, with a cost and with faults that a test sets. Its
/// fabric has its name, so two of these never meet.
final class TestBackend implements TransferBackendProvider {
    final List<Thread> threads = Collections.synchronizedList(new ArrayList<>());
    final List<String> closed;
    volatile Optional<Long> estimate = Optional.empty();
    volatile ErrorCode refuseSubmit = ErrorCode.INTERNAL;
    volatile boolean refusing;
    volatile Optional<Failure> failure = Optional.empty();
    volatile CompletableFuture<Void> quiesced = CompletableFuture.completedFuture(null);
    volatile boolean refuseMemory;
    volatile boolean provides;

    /// Calls of dropPeer.
    final AtomicInteger drops = new AtomicInteger();

    volatile boolean refusePeers;
    volatile boolean refuseNotify;

    /// Closes that fail, from now on.
    final AtomicInteger failingCloses = new AtomicInteger();

    /// Transfers all data and the notification, then reports a failure.
    volatile boolean loseAnswers;

    /// Asked at each submit, before the other faults, for another fault than none.
    volatile Supplier<Fault> chaos = () -> Fault.NONE;

    enum Fault {
        NONE,
        REFUSED,
        FAILED,
        FAILED_LATE,
        ANSWER_LOST,
        NO_MEMORY
    }

    static final Failure LOST = new Failure(ErrorCode.PEER_LOST, "connection reset");
    private static final Executor LATER =
            CompletableFuture.delayedExecutor(1, TimeUnit.MILLISECONDS);
    final AtomicInteger open = new AtomicInteger();

    /// Closes of prepared lists fail, though they close them.
    volatile boolean refuseListClose;

    /// Prepared lists that are not closed.
    final AtomicInteger lists = new AtomicInteger();

    private final MemoryBackendProvider memory = new MemoryBackendProvider();
    private final String name;
    private final Map<String, Object> options;

    TestBackend(String name, List<String> closed, Map<String, Object> options) {
        this.name = name;
        this.closed = closed;
        this.options = options;
    }

    TestBackend(String name) {
        this(name, new ArrayList<>(), Map.of());
    }

    private OptionValues values() {
        var all = new HashMap<>(options);
        all.put("fabric", fabric());
        return memory.options().read("test", all);
    }

    private String fabric() {
        return name + System.identityHashCode(this);
    }

    /// Damages a byte of what is moved next.
    void damageNext() {
        MemoryBackendProvider.damageNext(fabric());
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public String description() {
        return "in memory, with faults";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        return OptionSchema.NONE;
    }

    @Override
    public BackendCapabilities capabilities(OptionValues none) {
        return memory.capabilities(values());
    }

    @Override
    public TransferBackend open(BackendContext context) {
        threads.add(Thread.currentThread());
        open.incrementAndGet();
        return new Backend(
                memory.open(
                        new BackendContext(
                                context.self(), values(), context.sink(), context.events())));
    }

    private final class Backend implements TransferBackend {
        private final TransferBackend whole;

        Backend(TransferBackend whole) {
            this.whole = whole;
        }

        @Override
        public BackendCapabilities capabilities() {
            return whole.capabilities();
        }

        @Override
        public Registration register(MemoryRange range) {
            if (refuseMemory) {
                throw new KvFerryException(ErrorCode.NO_MEMORY, "cannot pin");
            }
            threads.add(Thread.currentThread());
            return whole.register(range);
        }

        @Override
        public Optional<ProvidedMemory> provideMemory(long bytes) {
            return provides ? Optional.of(new Pages(bytes)) : Optional.empty();
        }

        @Override
        public byte[] localMetadata() {
            return whole.localMetadata();
        }

        @Override
        public void loadPeer(PeerId peer, byte[] section) {
            if (refusePeers) {
                throw new KvFerryException(ErrorCode.CORRUPT, "bad section");
            }
            whole.loadPeer(peer, section);
        }

        @Override
        public void dropPeer(PeerId peer) {
            drops.incrementAndGet();
            whole.dropPeer(peer);
        }

        @Override
        public Prepared prepare(Optional<PeerId> peer, DescriptorList descriptors) {
            return new Handle(whole.prepare(peer, descriptors));
        }

        @Override
        public Prepared select(Prepared all, int[] indices) {
            return new Handle(whole.select(Handle.open(all), indices));
        }

        @Override
        public Transfer submit(TransferRequest request) {
            threads.add(Thread.currentThread());
            return submitOpen(
                    new TransferRequest(
                            request.operation(),
                            Handle.open(request.local()),
                            Handle.open(request.remote()),
                            request.notification(),
                            request.deadline(),
                            request.tag()));
        }

        private Transfer submitOpen(TransferRequest request) {
            var fault = chaos.get();
            if (refusing || fault == Fault.REFUSED) {
                throw new KvFerryException(refuseSubmit, "refused by the test");
            }
            if (fault == Fault.NO_MEMORY) {
                throw new OutOfMemoryError("thrown by the test");
            }
            if (failure.isPresent()) {
                return new Failing(failure.get(), quiesced);
            }
            return switch (fault) {
                case FAILED -> new Failing(LOST, CompletableFuture.completedFuture(null));
                case FAILED_LATE -> new Failing(LOST, CompletableFuture.runAsync(() -> {}, LATER));
                case ANSWER_LOST -> new AnswerLost(whole.submit(request));
                case NONE, REFUSED, NO_MEMORY ->
                        loseAnswers ? new AnswerLost(whole.submit(request)) : whole.submit(request);
            };
        }

        @Override
        public void notify(PeerId peer, byte[] notification) {
            if (refuseNotify) {
                throw new KvFerryException(ErrorCode.BACKPRESSURE, "no room");
            }
            whole.notify(peer, notification);
        }

        @Override
        public Optional<Long> estimateNanos(
                Operation operation, Optional<PeerId> peer, int descriptors, long bytes) {
            return estimate;
        }

        @Override
        public int poll() {
            return whole.poll();
        }

        @Override
        public void close() {
            threads.add(Thread.currentThread());
            if (failingCloses.get() > 0) {
                failingCloses.decrementAndGet();
                throw new KvFerryException(ErrorCode.TIMEOUT, "thrown by the test");
            }
            closed.add(name);
            open.decrementAndGet();
            whole.close();
        }
    }

    /// A prepared list whose handles are gone once it is closed, as those of a native library are.
    private final class Handle implements Prepared {
        private final Prepared list;
        private final AtomicBoolean closed = new AtomicBoolean();

        Handle(Prepared list) {
            this.list = list;
            lists.incrementAndGet();
        }

        static Prepared open(Prepared list) {
            if (!(list instanceof Handle handle)) {
                return list;
            }
            if (handle.closed.get()) {
                throw new KvFerryException(ErrorCode.INTERNAL, "a closed handle is used");
            }
            return handle.list;
        }

        @Override
        public DescriptorList descriptors() {
            return list.descriptors();
        }

        @Override
        public Optional<PeerId> peer() {
            return list.peer();
        }

        @Override
        public void close() {
            if (closed.compareAndSet(false, true)) {
                lists.decrementAndGet();
            }
            list.close();
            if (refuseListClose) {
                throw new KvFerryException(ErrorCode.CLOSED, "thrown by the test");
            }
        }
    }

    private record Pages(Arena arena, MemoryRange.Host range) implements ProvidedMemory {
        private Pages(Arena arena, long bytes) {
            this(arena, new MemoryRange.Host(arena.allocate(bytes, 4096)));
        }

        Pages(long bytes) {
            this(Arena.ofShared(), bytes);
        }

        @Override
        public void close() {
            arena.close();
        }
    }

    /// Fails at once, and is quiet when the test says so.
    private record Failing(TransferOutcome outcome, CompletionStage<Void> quiesced)
            implements Transfer {
        Failing(Failure why, CompletionStage<Void> quiesced) {
            this(new TransferOutcome.Failed(why), quiesced);
        }

        @Override
        public CompletionStage<TransferOutcome> completion() {
            return CompletableFuture.completedFuture(outcome);
        }

        @Override
        public Optional<TransferOutcome> poll() {
            return Optional.of(outcome);
        }

        @Override
        public boolean cancel() {
            return false;
        }
    }

    /// A transfer that succeeds but reports a failure.
    private record AnswerLost(Transfer real) implements Transfer {
        private static TransferOutcome told(TransferOutcome real) {
            return real instanceof TransferOutcome.Done ? new TransferOutcome.Failed(LOST) : real;
        }

        @Override
        public CompletionStage<TransferOutcome> completion() {
            return real.completion().thenApply(AnswerLost::told);
        }

        @Override
        public CompletionStage<Void> quiesced() {
            return real.quiesced();
        }

        @Override
        public Optional<TransferOutcome> poll() {
            return real.poll().map(AnswerLost::told);
        }

        @Override
        public boolean cancel() {
            return real.cancel();
        }
    }
}
