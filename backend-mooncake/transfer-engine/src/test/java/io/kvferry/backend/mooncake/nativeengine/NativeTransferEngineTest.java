// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.nativeengine;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.te.Announced;
import io.kvferry.backend.mooncake.te.EngineOutcome;
import io.kvferry.backend.mooncake.te.EngineOutcome.Completed;
import io.kvferry.backend.mooncake.te.EngineOutcome.Failed;
import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.EngineTransfer;
import io.kvferry.backend.mooncake.te.Guarantee;
import io.kvferry.backend.mooncake.te.Notification;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.RegisteredMemory;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.TimeUnit;

/// The FFM engine against a C double of the library, compiled by gcc.
@SuppressWarnings("NullAway.Init")
class NativeTransferEngineTest {
    @TempDir static Path folder;

    private static Path library;

    private NativeTransferEngine here;
    private NativeTransferEngine there;
    private RegisteredMemory near;
    private RegisteredMemory far;

    @BeforeAll
    static void compile() {
        library = TransferEngineDouble.compile();
    }

    private static NativeConfig config(String protocol, String devices) {
        return config(protocol, devices, Duration.ofSeconds(5));
    }

    private static NativeConfig config(String protocol, String devices, Duration closeTimeout) {
        return new NativeConfig(
                library,
                "P2PHANDSHAKE",
                "127.0.0.1",
                "127.0.0.1",
                protocol,
                devices,
                8,
                closeTimeout);
    }

    @BeforeEach
    void start() {
        here = NativeTransferEngine.start(config("tcp", ""));
        there = NativeTransferEngine.start(config("tcp", ""));
        near = here.allocate(1 << 16);
        far = there.allocate(1 << 16);
        for (int i = 0; i < 1 << 16; i++) {
            near.memory().set(ValueLayout.JAVA_BYTE, i, (byte) (i * 7));
        }
    }

    @AfterEach
    void close() {
        here.close();
        there.close();
    }

    private EngineRequest write(long bytes) {
        return EngineRequest.write(
                there.info().segmentName(),
                Ranges.of(near.address(), far.address(), bytes),
                Deadline.in(Duration.ofSeconds(60)));
    }

    private static ErrorCode codeOf(EngineOutcome outcome) {
        return outcome instanceof Failed failed ? failed.failure().code() : ErrorCode.INTERNAL;
    }

    @Test
    void writesReadsAndNotifies() {
        var ranges = new Ranges(4).add(near.address(), far.address(), 1000);
        ranges.add(near.address() + 1000, far.address() + 1000, 0);
        ranges.add(near.address() + 1000, far.address() + 1000, (1 << 16) - 1000);
        var request =
                Announced.by(
                        new Notification("p", "done"),
                        EngineRequest.write(
                                there.info().segmentName(),
                                ranges,
                                Deadline.in(Duration.ofSeconds(60))));
        assertThat(here.transfer(request)).isEqualTo(new Completed(1 << 16, Guarantee.SENT, "tcp"));
        assertThat(near.memory().mismatch(far.memory())).isEqualTo(-1);
        assertThat(there.takeNotifications(5)).containsExactly(new Notification("p", "done"));
        assertThat(there.takeNotifications(5)).isEmpty();

        near.memory().fill((byte) 0);
        assertThat(
                        here.transfer(
                                EngineRequest.read(
                                        there.info().segmentName(),
                                        ranges,
                                        Deadline.in(Duration.ofSeconds(60)))))
                .isEqualTo(new Completed(1 << 16, Guarantee.APPLIED, "tcp"));
        assertThat(near.memory().mismatch(far.memory())).isEqualTo(-1);
    }

    @Test
    void namesFailures() {
        assertThat(here.transfer(write(666)))
                .isInstanceOfSatisfying(
                        Failed.class,
                        failed -> {
                            assertThat(failed.failure().code()).isEqualTo(ErrorCode.PEER_LOST);
                            assertThat(failed.range()).isZero();
                        });
        assertThat(
                        codeOf(
                                here.transfer(
                                        EngineRequest.write(
                                                "127.0.0.1:15063",
                                                Ranges.of(near.address(), 1, 1),
                                                Deadline.in(Duration.ofSeconds(20))))))
                .isEqualTo(ErrorCode.PEER_LOST);
        assertThat(codeOf(here.transfer(write(8).withCapability(5))))
                .isEqualTo(ErrorCode.UNSUPPORTED);
        assertThatThrownBy(() -> here.grant(near.address(), 1))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.UNSUPPORTED));
        assertThatThrownBy(() -> here.register(near.memory().asSlice(10, 10)))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> {
                            assertThat(e.code()).isEqualTo(ErrorCode.INVALID_REQUEST);
                            assertThat(e).hasMessageContaining("-7");
                        });
    }

    /// A WRITE that the library does not end.
    private EngineTransfer stuck(NativeTransferEngine engine, RegisteredMemory memory) {
        assertThat(here.transfer(write(779))).isInstanceOf(Completed.class);
        return engine.submit(
                EngineRequest.write(
                        there.info().segmentName(),
                        Ranges.of(memory.address(), far.address(), 777),
                        Deadline.in(Duration.ofMillis(100))));
    }

    /// Whoever closes frees the memory next.
    @Test
    void memoryThatTheLibraryStillWorksOnIsNotGivenBack() throws Exception {
        var engine = NativeTransferEngine.start(config("tcp", "", Duration.ofMillis(300)));
        var memory = engine.allocate(1 << 16);
        EngineTransfer stuck = stuck(engine, memory);
        assertThat(codeOf(stuck.outcome().toCompletableFuture().get(40, TimeUnit.SECONDS)))
                .isEqualTo(ErrorCode.TIMEOUT);
        for (int i = 0; i < 2; i++) {
            assertRefused(memory::close);
            assertRefused(engine::close);
        }
        assertThat(memory.memory().scope().isAlive()).isTrue();
        assertThat(here.transfer(write(778))).isInstanceOf(Completed.class);
        stuck.quiesced().toCompletableFuture().get(40, TimeUnit.SECONDS);
        closeAtLast(engine);
        assertThat(memory.memory().scope().isAlive()).isFalse();
    }

    /// The thread that says that a transfer is quiet counts it out a moment later.
    private static void closeAtLast(NativeTransferEngine engine) {
        var limit = Deadline.in(Duration.ofSeconds(40));
        while (true) {
            try {
                engine.close();
                return;
            } catch (KvFerryException e) {
                assertThat(e.code()).isEqualTo(ErrorCode.TIMEOUT);
                assertThat(limit.passed()).as("it does not close").isFalse();
            }
        }
    }

    @Test
    void memoryOfATransferThatTheLibraryDoesNotKnowIsNotGivenBack() throws Exception {
        var engine = NativeTransferEngine.start(config("tcp", "", Duration.ofMillis(300)));
        var memory = engine.allocate(1 << 16);
        EngineTransfer lost =
                engine.submit(
                        EngineRequest.write(
                                there.info().segmentName(),
                                Ranges.of(memory.address(), far.address(), 781),
                                Deadline.in(Duration.ofSeconds(60))));
        assertThat(codeOf(lost.outcome().toCompletableFuture().get(40, TimeUnit.SECONDS)))
                .isEqualTo(ErrorCode.INTERNAL);
        assertThat(lost.quiesced().toCompletableFuture()).isNotDone();
        assertRefused(memory::close);
        assertRefused(engine::close);
        assertThat(memory.memory().scope().isAlive()).isTrue();
    }

    @Test
    void aTransferThatTheLibraryRefusesInTheMiddleIsQuietWhenWhatItHasBegunIs() throws Exception {
        assertThat(here.transfer(write(779))).isInstanceOf(Completed.class);
        var ranges = new Ranges(2).add(near.address(), far.address(), 777);
        ranges.add(near.address() + 777, far.address() + 777, 782);
        EngineTransfer refused =
                here.submit(
                        EngineRequest.write(
                                there.info().segmentName(),
                                ranges,
                                Deadline.in(Duration.ofSeconds(60))));
        assertThat(codeOf(refused.outcome().toCompletableFuture().get(40, TimeUnit.SECONDS)))
                .isEqualTo(ErrorCode.INVALID_REQUEST);
        assertThat(refused.quiesced().toCompletableFuture()).isNotDone();
        assertThat(here.transfer(write(778))).isInstanceOf(Completed.class);
        refused.quiesced().toCompletableFuture().get(40, TimeUnit.SECONDS);
    }

    /// It fails, and no memory waits for it.
    @Test
    void aTransferThatGetsNoThreadIsRefused() throws Exception {
        var batches =
                new Batches(
                        here,
                        TeLibrary.load(library),
                        MemorySegment.NULL,
                        config("tcp", ""),
                        _ -> {
                            throw new OutOfMemoryError("unable to create native thread");
                        });
        EngineTransfer refused = batches.submit(write(8), transfer -> transfer);
        assertThat(codeOf(refused.outcome().toCompletableFuture().get(40, TimeUnit.SECONDS)))
                .isEqualTo(ErrorCode.BACKPRESSURE);
        refused.quiesced().toCompletableFuture().get(40, TimeUnit.SECONDS);
        assertThat(batches.close()).isTrue();
    }

    private static void assertRefused(ThrowingCallable closing) {
        assertThatThrownBy(closing)
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.TIMEOUT));
    }

    @Test
    void timedOutTransfersAreQuiescedOnlyWhenTheLibraryIsDone() throws Exception {
        EngineTransfer stuck = stuck(here, near);
        assertThat(codeOf(stuck.outcome().toCompletableFuture().get(40, TimeUnit.SECONDS)))
                .isEqualTo(ErrorCode.TIMEOUT);
        assertThat(stuck.quiesced().toCompletableFuture()).isNotDone();
        // The double lets go of it with the next transfer of this length.
        assertThat(here.transfer(write(778))).isInstanceOf(Completed.class);
        stuck.quiesced().toCompletableFuture().get(40, TimeUnit.SECONDS);
    }

    @Test
    void installsTheTransportThatIsAskedForOrNone() {
        try (var rdma = NativeTransferEngine.start(config("rdma", "mlx5_0,mlx5_1"))) {
            assertThat(rdma.info().transport()).isEqualTo("rdma");
        }
        assertThatThrownBy(() -> NativeTransferEngine.start(config("rdma", "mlx5_9")))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.UNAVAILABLE));
        assertThatThrownBy(() ->
                        new NativeConfig(
                                library,
                                "zookeeper://x",
                                "n",
                                "h",
                                "tcp",
                                "",
                                1,
                                Duration.ofSeconds(1)))
                .hasMessageContaining("zookeeper");
    }

    @Test
    void saysHowToGetTheLibrary() {
        assertThatThrownBy(() ->
                        NativeTransferEngine.start(
                                NativeConfig.of(folder.resolve("no.so"), "127.0.0.1")))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.UNAVAILABLE))
                .hasMessageContaining("BUILD_SHARED_LIBS");
    }
}
