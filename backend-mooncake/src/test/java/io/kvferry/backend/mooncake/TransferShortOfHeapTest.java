// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.Access;
import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.EngineOutcome;
import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.WriteGrant;
import io.kvferry.backend.mooncake.te.internal.tcp.ProcessorRoom;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryKind;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Prepared;
import io.kvferry.spi.transfer.Registration;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferBackend.PeerState;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;
import io.kvferry.toolkit.memory.FullHeap;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.SocketTimeoutException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/// Each call of a transfer backend in a process whose heap has some bytes left, from none to
/// enough, so that allocations of the call fail one after the other, on whichever thread and at
/// either end of the connection. Whichever fails, what was started ends with an outcome, and the
/// one connection, the places in queues and the memory are there for what comes next.
class TransferShortOfHeapTest {
    @TempDir Path root;

    /// Calls in which something was lost once, with steps at which it was.
    @Test
    void losesNothingWhicheverAllocationFails() throws Exception {
        sweep(Call.REGISTER, "32", Call.WRITE, "480", Call.SUBMIT_BEHIND_OTHERS, "160");
    }

    /// Steps as small as some minutes allow: a call over the network makes many allocations.
    @Tag("soak")
    @ParameterizedTest
    @CsvSource({
        "REGISTER, 16",
        "DEREGISTER, 16",
        "GRANT, 16",
        "CANCEL, 32",
        "CLOSE, 32",
        "SUBMIT_BEHIND_OTHERS, 48",
        "WRITE, 480",
        "READ, 512",
        "TRANSFER, 512",
        "FIRST_WRITE, 512",
        "WRITE_AND_NOTIFY, 1024",
        "NOTIFY, 1024",
        "LOAD_PEER, 1024",
        "OPEN, 1024",
        "START, 1024"
    })
    void losesNothingInSmallSteps(Call call, String step) throws Exception {
        sweep(call, step);
    }

    /// @param callsAndSteps a call, its step, the next call, and so on
    private void sweep(Object... callsAndSteps) throws Exception {
        var arguments = Arrays.stream(callsAndSteps).map(Object::toString).toArray(String[]::new);
        assertThat(FullHeap.run(root, 12, Duration.ofSeconds(600), Child.class, arguments))
                .contains("nothing is lost");
    }

    enum Call {
        REGISTER {
            @Override
            void work(Child child) {
                child.registered = child.near.register(new MemoryRange.Host(child.other));
            }
        },
        DEREGISTER {
            @Override
            void prepare(Child child) {
                child.registered = child.near.register(new MemoryRange.Host(child.other));
            }

            @Override
            void work(Child child) {
                child.closeRegistered();
            }
        },
        GRANT {
            @Override
            void work(Child child) {
                child.grant = child.nearEngine.grant(child.local.address(), 4096);
            }
        },
        LOAD_PEER {
            @Override
            void prepare(Child child) {
                child.renew();
            }

            @Override
            void work(Child child) {
                child.near.loadPeer(Child.FAR, child.metadata);
            }
        },
        OPEN {
            @Override
            void prepare(Child child) {
                child.renew();
            }

            @Override
            void work(Child child) {
                child.nearEngine.open(child.farEngine.info().segmentName(), Child.soon());
            }
        },
        READ {
            @Override
            void work(Child child) {
                child.moves(Operation.READ);
            }
        },
        WRITE(true) {
            @Override
            void work(Child child) {
                child.moves(Operation.WRITE);
            }
        },
        /// The peer is not known yet, and there is no connection.
        FIRST_WRITE(true) {
            @Override
            void prepare(Child child) {
                child.renew();
                child.meet();
            }

            @Override
            void work(Child child) {
                child.moves(Operation.WRITE);
            }
        },
        /// In the thread of the caller.
        TRANSFER {
            @Override
            void work(Child child) {
                child.outcome = child.nearEngine.transfer(child.request());
                child.require(child.outcome instanceof EngineOutcome.Completed);
            }
        },
        WRITE_AND_NOTIFY(true) {
            @Override
            void prepare(Child child) {
                child.notification = Optional.of(new byte[] {1});
            }

            @Override
            void work(Child child) {
                child.moves(Operation.WRITE);
            }
        },
        NOTIFY {
            @Override
            void work(Child child) {
                int heard = child.heard.get();
                child.near.notify(Child.FAR, new byte[] {2});
                child.accepted = true;
                child.require(Child.comes(() -> child.heard.get() > heard));
            }

            @Override
            void check(Child child) {
                assertThat(
                                !child.accepted
                                        || Child.comes(() ->
                                                child.heard.get() + child.undelivered.get() > 0))
                        .as("heard, or said to be lost")
                        .isTrue();
            }
        },
        /// As many wait as the queue has room for before it grows.
        SUBMIT_BEHIND_OTHERS {
            @Override
            void prepare(Child child) {
                child.meetSilence();
                for (int i = 0; i < 17; i++) { // one runs
                    child.started.add(child.submit(Operation.READ, child.silence()));
                }
            }

            @Override
            void work(Child child) {
                Transfer last = child.submit(Operation.READ, child.silence());
                child.started.add(last);
                child.require(!Child.hasEnded(last));
            }

            @Override
            void check(Child child) {
                child.started.add(child.submit(Operation.READ, child.silence()));
            }
        },
        CANCEL {
            @Override
            void prepare(Child child) {
                child.meetSilence();
                child.started.add(child.submit(Operation.WRITE, child.silence()));
            }

            @Override
            void work(Child child) {
                child.cancels();
                child.require(Child.comes(() -> Child.hasEnded(child.started.getFirst())));
            }
        },
        START {
            private static final PeerId NEAR_BY = new PeerId("another", 1);

            @Override
            void work(Child child) {
                child.another = new MooncakeTransferProvider().open(child.context(NEAR_BY));
            }
        },
        CLOSE {
            @Override
            void prepare(Child child) {
                child.renew();
                child.meet();
                child.moves(Operation.READ);
                child.meetSilence();
                child.started.clear();
                child.started.add(child.submit(Operation.READ, child.silence()));
                child.started.add(child.submit(Operation.READ, child.silence()));
            }

            @Override
            void work(Child child) {
                child.near.close();
                child.ended = true;
            }

            @Override
            void check(Child child) {
                if (!child.ended) {
                    child.near.close();
                }
                child.requireEnds();
                child.start();
                child.meet();
            }
        };

        final boolean writes;

        Call() {
            this(false);
        }

        /// @param writes whether it is a WRITE to the far agent
        Call(boolean writes) {
            this.writes = writes;
        }

        void prepare(Child child) {}

        abstract void work(Child child);

        void check(Child child) {}
    }

    static final class Child implements FullHeap.Trial {
        private static final PeerId NEAR = new PeerId("near", 1);
        private static final PeerId FAR = new PeerId("far", 7);
        private static final PeerId SILENT = new PeerId("silent", 9);
        private static final Duration SOON = Duration.ofSeconds(8);
        private static final int MOST = 512 << 10;
        private static final long BYTES = 96 << 10;

        /// One connection, whose loss shows; and a queue.
        private static final EngineConfig CONFIG =
                EngineConfig.from(
                        Map.of(
                                "lanes-per-peer", "1",
                                "max-connections", "8",
                                "queue-per-peer", "64",
                                "connect-timeout-ms", "1000",
                                "handshake-timeout-ms", "4000",
                                "stall-timeout-ms", "1000",
                                "drain-timeout-ms", "1",
                                "checksum", "true",
                                "shared-memory", "false"));

        private final MemorySegment local = Arena.global().allocate(BYTES, 64);
        private final MemorySegment remote = Arena.global().allocate(BYTES, 64);
        private final MemorySegment other = Arena.global().allocate(4096, 64);
        private final AtomicInteger heard = new AtomicInteger();
        private final AtomicInteger undelivered = new AtomicInteger();
        private final ServerSocket silent;
        private final JavaTransferEngine farEngine = startEngine();
        private final MooncakeTransferBackend far = open(FAR, farEngine);
        private final byte[] metadata;
        private Call call = Call.REGISTER;
        private JavaTransferEngine nearEngine = farEngine;
        private MooncakeTransferBackend near = far;
        private @Nullable Registration registered;
        private @Nullable WriteGrant grant;
        private @Nullable TransferBackend another;
        private @Nullable EngineOutcome outcome;
        private Optional<byte[]> notification = Optional.empty();
        private final ArrayList<Transfer> started = new ArrayList<>(32);
        private boolean done;
        private boolean ended;
        private boolean accepted;
        private int mostThreads;

        private Child() throws IOException {
            silent = new ServerSocket(0, 256, InetAddress.getLoopbackAddress());
            silent.setSoTimeout(1);
            far.register(new MemoryRange.Host(remote));
            metadata = far.localMetadata();
            start();
            meet();
        }

        public static void main(String[] args) throws IOException {
            var child = new Child();
            for (int i = 0; i < args.length; i += 2) {
                child.call = Call.valueOf(args[i]);
                child.loadClasses();
                int failures = FullHeap.sweep(Integer.parseInt(args[i + 1]), MOST, child);
                System.out.println("\n" + child.call + " failed " + failures + " times");
            }
            System.out.println("\nnothing is lost");
            System.exit(0);
        }

        /// One whose initialisation lacks memory is of no use for good.
        private void loadClasses() {
            prepare();
            assertThat(work()).as("%s with memory enough", call).isTrue();
            check(Integer.MAX_VALUE);
        }

        private static JavaTransferEngine startEngine() {
            return JavaTransferEngine.start(CONFIG);
        }

        private MooncakeTransferBackend open(PeerId self, JavaTransferEngine engine) {
            var context = context(self);
            return new MooncakeTransferBackend(
                    context,
                    new MooncakeTransferProvider().capabilities(context.options()),
                    engine,
                    Access.KEYED);
        }

        private BackendContext context(PeerId self) {
            var options =
                    new MooncakeTransferProvider()
                            .options()
                            .read("test", Map.of("shared_memory", false));
            var sink =
                    new BackendContext.Sink() {
                        @Override
                        public void notified(PeerId from, byte[] bytes) {
                            heard.incrementAndGet();
                        }

                        @Override
                        public void peerChanged(PeerId peer, PeerState state, String why) {}
                    };
            return new BackendContext(self, options, sink, _ -> undelivered.incrementAndGet());
        }

        private static Deadline soon() {
            return Deadline.in(SOON);
        }

        void start() {
            nearEngine = startEngine();
            near = open(NEAR, nearEngine);
            near.register(new MemoryRange.Host(local));
        }

        /// Another agent in the place of the near one, which knows nobody.
        void renew() {
            near.close();
            start();
        }

        void meet() {
            near.loadPeer(FAR, metadata);
        }

        /// Accepts connections, and says nothing.
        void meetSilence() {
            dropCallers();
            near.loadPeer(
                    SILENT,
                    MooncakePeer.Section.encode(
                            "127.0.0.1:" + silent.getLocalPort(), "", 0, List.of(registration())));
        }

        private void dropCallers() {
            try {
                while (true) {
                    silent.accept().close();
                }
            } catch (SocketTimeoutException _) {
                return; // that was the last one
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        private MooncakeRegistration registration() {
            return new MooncakeRegistration(new MemoryRange.Host(remote), _ -> {});
        }

        private DescriptorList list(MemorySegment memory) {
            return DescriptorList.builder(MemoryKind.HOST)
                    .addStrided(0, memory.address(), BYTES / 3, BYTES / 3, 3)
                    .build();
        }

        Prepared silence() {
            return near.prepare(Optional.of(SILENT), list(remote));
        }

        Transfer submit(Operation operation, Prepared there) {
            return near.submit(
                    new TransferRequest(
                            operation,
                            near.prepare(Optional.empty(), list(local)),
                            there,
                            notification,
                            soon(),
                            "test"));
        }

        EngineRequest request() {
            return new EngineRequest(
                    EngineRequest.Operation.WRITE,
                    farEngine.info().segmentName(),
                    Ranges.of(local.address(), remote.address(), BYTES),
                    soon(),
                    "",
                    0,
                    farEngine.memoryKey(),
                    Optional.empty());
        }

        /// Runs a transfer to its end.
        void moves(Operation operation) {
            Transfer transfer = submit(operation, near.prepare(Optional.of(FAR), list(remote)));
            started.add(transfer);
            require(
                    comes(() -> hasEnded(transfer))
                            && transfer.poll().orElseThrow() instanceof TransferOutcome.Done);
        }

        void cancels() {
            assertThat(started.getFirst().cancel()).isTrue();
        }

        void closeRegistered() {
            Registration open = registered;
            if (open != null) {
                open.close();
                registered = null;
            }
        }

        /// A transfer that has ended takes memory to say so.
        static boolean hasEnded(Transfer transfer) {
            try {
                return transfer.poll().isPresent();
            } catch (OutOfMemoryError _) {
                return true;
            }
        }

        /// Whether it comes in time. Takes no memory.
        static boolean comes(BooleanSupplier what) {
            long began = System.nanoTime();
            while (System.nanoTime() - began < TimeUnit.SECONDS.toNanos(3)) {
                if (what.getAsBoolean()) {
                    return true;
                }
                LockSupport.parkNanos(100_000);
            }
            return false;
        }

        void require(boolean whole) {
            done &= whole;
        }

        void requireEnds() {
            for (Transfer transfer : started) {
                assertThat(transfer.completion().toCompletableFuture())
                        .as("completion")
                        .succeedsWithin(SOON.plusSeconds(5));
                assertThat(transfer.quiesced().toCompletableFuture())
                        .as("quiet")
                        .succeedsWithin(SOON.plusSeconds(15));
            }
        }

        @Override
        public void prepare() {
            started.clear();
            notification = Optional.empty();
            done = true;
            ended = false;
            accepted = false;
            heard.set(0);
            undelivered.set(0);
            call.prepare(this);
            local.fill((byte) 0x5a);
            remote.fill((byte) 0x33);
        }

        @Override
        public boolean work() {
            try {
                call.work(this);
                return done;
            } catch (KvFerryException _) { // refused, such as for lack of a thread
                return false;
            }
        }

        @Override
        public void check(int left) {
            try {
                call.check(this);
                started.forEach(Transfer::cancel);
                requireEnds();
                requireNothingStarted();
                closeRegistered();
                near.register(new MemoryRange.Host(other)).close();
                if (grant != null) {
                    grant.close();
                    grant = null;
                }
                if (another != null) {
                    another.close();
                    another = null;
                }
                moveBothWays();
                assertThat(comes(() -> hasAllProcessors())).as("connections in use").isTrue();
                mostThreads = mostThreads > 0 ? mostThreads : Thread.activeCount() + 24;
                assertThat(comes(() -> Thread.activeCount() <= mostThreads))
                        .as("%d threads, not %d", Thread.activeCount(), mostThreads)
                        .isTrue();
            } catch (RuntimeException | Error e) {
                throw new AssertionError(call + " with " + left + " bytes left", e);
            }
        }

        /// What threw has moved nothing, and does not later.
        private void requireNothingStarted() {
            if (started.isEmpty() && call.writes) {
                LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(20));
                assertThat(remote.get(ValueLayout.JAVA_BYTE, 0)).isEqualTo((byte) 0x33);
            }
        }

        private void moveBothWays() {
            near.dropPeer(SILENT);
            if (call == Call.LOAD_PEER || call == Call.OPEN) {
                meet();
            }
            started.clear();
            notification = Optional.of(new byte[] {3});
            int before = heard.get();
            local.fill((byte) (System.nanoTime() | 1));
            remote.fill((byte) 0);
            done = true;
            moves(Operation.WRITE);
            requireEnds();
            assertThat(started.getFirst().poll().orElseThrow())
                    .as("a WRITE with memory enough")
                    .isInstanceOf(TransferOutcome.Done.class);
            assertThat(local.mismatch(remote)).as("WRITE").isEqualTo(-1);
            assertThat(comes(() -> heard.get() > before)).as("notification").isTrue();
            started.clear();
            notification = Optional.empty();
            local.fill((byte) 0);
            moves(Operation.READ);
            requireEnds();
            assertThat(started.getFirst().poll().orElseThrow())
                    .as("a READ with memory enough")
                    .isInstanceOf(TransferOutcome.Done.class);
            assertThat(local.mismatch(remote)).as("READ").isEqualTo(-1);
            near.notify(FAR, new byte[] {4});
            assertThat(comes(() -> heard.get() > before + 1)).as("second notification").isTrue();
        }

        private static boolean hasAllProcessors() {
            return ProcessorRoom.OF_PROCESS.lanes() == Runtime.getRuntime().availableProcessors();
        }
    }
}
