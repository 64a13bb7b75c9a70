// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.te.Access;
import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.EngineOutcome;
import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.backend.mooncake.te.peers.PlainClient;
import io.kvferry.spi.Availability;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryKind;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.observe.TraceEvent;
import io.kvferry.spi.transfer.BackendCapabilities.Feature;
import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Prepared;
import io.kvferry.spi.transfer.Registration;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferBackend.PeerState;
import io.kvferry.spi.transfer.TransferBackendProvider;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.ServiceLoader;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

/// The backend MOONCAKE between two agents of one process.
@SuppressWarnings("NullAway.Init")
class MooncakeTransferBackendTest {
    private static final PeerId A = new PeerId("a", 1);
    private static final PeerId B = new PeerId("b", 7);

    private final BlockingQueue<String> told = new LinkedBlockingQueue<>();
    private final BlockingQueue<TraceEvent> events = new LinkedBlockingQueue<>();

    /// Runs once, at the next notification.
    private final AtomicReference<Runnable> onNotification = new AtomicReference<>(() -> {});

    private Arena arena;
    private TransferBackend a;
    private TransferBackend b;
    private MemorySegment near;
    private MemorySegment far;

    private TransferBackend open(PeerId self, Map<String, ?> options) {
        var provider = new MooncakeTransferProvider();
        return provider.open(
                new BackendContext(
                        self,
                        provider.options().read("test", options),
                        new BackendContext.Sink() {
                            @Override
                            public void notified(PeerId from, byte[] notification) {
                                onNotification.getAndSet(() -> {}).run();
                                told.add(
                                        self.agent()
                                                + " hears "
                                                + from
                                                + ": "
                                                + new String(notification, StandardCharsets.UTF_8));
                            }

                            @Override
                            public void peerChanged(PeerId peer, PeerState state, String why) {
                                told.add(self.agent() + " sees " + peer + " " + state);
                            }
                        },
                        events::add));
    }

    @BeforeEach
    void start() {
        arena = Arena.ofShared();
        near = arena.allocate(1 << 20, 64);
        far = arena.allocate(1 << 20, 64);
        a = open(A, Map.of());
        b = open(B, Map.of());
    }

    /// A peer on this host that was stopped in the middle of a copy, and ends at last.
    @Test
    void aCloseThatFailedIsTriedAgain() {
        var times = new AtomicInteger(2);
        var engine = JavaTransferEngine.start(EngineConfig.defaults());
        var copiedFrom =
                (TransferEngine)
                        Proxy.newProxyInstance(
                                getClass().getClassLoader(),
                                new Class<?>[] {TransferEngine.class},
                                (_, method, arguments) -> {
                                    if (method.getName().equals("close")
                                            && times.getAndDecrement() > 0) {
                                        throw new KvFerryException(
                                                ErrorCode.TIMEOUT, "thrown by the test");
                                    }
                                    return method.invoke(engine, arguments);
                                });
        var provider = new MooncakeTransferProvider();
        var options = provider.options().read("test", Map.of());
        var sink =
                new BackendContext.Sink() {
                    @Override
                    public void notified(PeerId from, byte[] notification) {}

                    @Override
                    public void peerChanged(PeerId peer, PeerState state, String why) {}
                };
        var backend =
                new MooncakeTransferBackend(
                        new BackendContext(new PeerId("c", 1), options, sink, events::add),
                        provider.capabilities(options),
                        copiedFrom,
                        Access.KEYED);
        for (int i = 0; i < 2; i++) {
            assertThatThrownBy(backend::close)
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.TIMEOUT));
        }
        backend.close();
        assertThat(times).hasNegativeValue();
        assertThatThrownBy(() -> engine.allocate(4096))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.CLOSED));
    }

    @AfterEach
    void close() {
        a.close();
        b.close();
        arena.close();
    }

    private static DescriptorList list(MemorySegment memory, long length, int count) {
        return DescriptorList.builder(MemoryKind.HOST)
                .addStrided(0, memory.address(), length, length, count)
                .build();
    }

    private TransferRequest request(
            Operation operation, Prepared remote, Optional<byte[]> notification) {
        return new TransferRequest(
                operation,
                a.prepare(Optional.empty(), list(near, 1 << 16, 16)),
                remote,
                notification,
                Deadline.in(Duration.ofSeconds(30)),
                "test");
    }

    private static TransferOutcome outcome(Transfer transfer) throws Exception {
        transfer.quiesced().toCompletableFuture().get(40, TimeUnit.SECONDS);
        return transfer.completion().toCompletableFuture().get(40, TimeUnit.SECONDS);
    }

    @Test
    void isFoundAndDescribesItself() {
        var found =
                ServiceLoader.load(TransferBackendProvider.class).stream()
                        .map(ServiceLoader.Provider::get)
                        .filter(provider -> provider.name().equals("MOONCAKE"))
                        .findFirst()
                        .orElseThrow();
        assertThat(found.availability()).isInstanceOf(Availability.Available.class);
        var options = found.options().read("test", Map.of("shared_memory", false));
        assertThat(found.capabilities(options).features())
                .contains(
                        Feature.CHECKSUM,
                        Feature.NOTIFY,
                        Feature.CANCEL,
                        Feature.APPLIED_ON_COMPLETION);
    }

    @Test
    void theEngineCopiesBetweenProcessesUnlessTold() {
        var byDefault = MooncakeOptions.javaConfig(MooncakeOptions.SCHEMA.read("test", Map.of()));
        assertThat(byDefault.crossMemory()).isTrue();
        assertThat(byDefault.crossMemoryPtracer()).isFalse();
        var other =
                MooncakeOptions.javaConfig(
                        MooncakeOptions.SCHEMA.read(
                                "test",
                                Map.of("cross_memory", false, "cross_memory_ptracer", true)));
        assertThat(other.crossMemory()).isFalse();
        assertThat(other.crossMemoryPtracer()).isTrue();
    }

    @Test
    void refusesOptionsThatContradictEachOther() {
        for (Map<String, String> options :
                java.util.List.of(
                        Map.of("protocol", "rdma"),
                        Map.of("device", "mlx5_0"),
                        Map.of("metadata", "http://127.0.0.1:1/metadata"),
                        Map.of("metadata", "nonsense", "name", "n"))) {
            assertThatThrownBy(() -> open(A, options))
                    .as(options.toString())
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.BAD_CONFIG));
        }
        assertThatThrownBy(() -> open(A, Map.of("engine", "native", "library", "/no/such/lib.so")))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.UNAVAILABLE))
                .hasMessageContaining("BUILD_SHARED_LIBS");
    }

    @Test
    void writesReadsAndNotifiesAfterTheData() throws Exception {
        Registration local = a.register(new MemoryRange.Host(near));
        Registration remote = b.register(new MemoryRange.Host(far));
        for (long i = 0; i < near.byteSize(); i++) {
            near.set(ValueLayout.JAVA_BYTE, i, (byte) (i * 31));
        }
        a.loadPeer(B, b.localMetadata());
        Prepared there = a.prepare(Optional.of(B), list(far, 1 << 16, 16));
        assertThat(told.poll(40, TimeUnit.SECONDS)).isEqualTo("a sees b#7 KNOWN");

        var done = outcome(a.submit(request(Operation.WRITE, there, Optional.of(new byte[0]))));
        assertThat(done)
                .isInstanceOfSatisfying(
                        TransferOutcome.Done.class,
                        it -> {
                            assertThat(it.bytes()).isEqualTo(1 << 20);
                            assertThat(it.applied()).isTrue();
                        });
        assertThat(near.mismatch(far)).isEqualTo(-1);
        assertThat(
                        java.util.List.of(
                                told.poll(40, TimeUnit.SECONDS) + "",
                                told.poll(40, TimeUnit.SECONDS) + ""))
                .containsExactlyInAnyOrder("b hears a#1: ", "a sees b#7 READY");

        near.fill((byte) 0);
        assertThat(outcome(a.submit(request(Operation.READ, there, Optional.empty()))))
                .isInstanceOf(TransferOutcome.Done.class);
        assertThat(near.mismatch(far)).isEqualTo(-1);
        a.notify(B, "hello".getBytes(StandardCharsets.UTF_8));
        assertThat(told.poll(40, TimeUnit.SECONDS)).isEqualTo("b hears a#1: hello");
        local.close();
        remote.close();
        assertThat(outcome(failsLater(there)))
                .isInstanceOfSatisfying(
                        TransferOutcome.Failed.class,
                        failed ->
                                assertThat(failed.failure().code())
                                        .isEqualTo(ErrorCode.PEER_REFUSED));
    }

    /// A transfer from fresh local memory to a prepared list whose regions are gone.
    private Transfer failsLater(Prepared there) {
        a.register(new MemoryRange.Host(near));
        return a.submit(request(Operation.WRITE, there, Optional.empty()));
    }

    @Test
    void refusesWhatItCannotResolve() {
        a.register(new MemoryRange.Host(near));
        b.register(new MemoryRange.Host(far));
        assertThatThrownBy(() -> a.prepare(Optional.of(B), list(far, 1 << 16, 16)))
                .hasMessageContaining("unknown");
        a.loadPeer(B, b.localMetadata());
        assertThatThrownBy(() -> a.prepare(Optional.of(B), list(near, 1 << 16, 16)))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.NOT_FOUND));
        assertThatThrownBy(() -> a.loadPeer(B, new byte[] {2, 0, 0, 0, 9}))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.CORRUPT));
        Prepared there = a.prepare(Optional.of(B), list(far, 1 << 16, 16));
        a.loadPeer(new PeerId("b", 8), b.localMetadata());
        assertThatThrownBy(() -> a.submit(request(Operation.WRITE, there, Optional.empty())))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.STALE_INCARNATION));
        assertThatThrownBy(() -> a.loadPeer(B, b.localMetadata()))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.STALE_INCARNATION));
    }

    @Test
    void reportsAPeerThatLeft() throws Exception {
        a.register(new MemoryRange.Host(near));
        b.register(new MemoryRange.Host(far));
        a.loadPeer(B, b.localMetadata());
        Prepared there = a.prepare(Optional.of(B), list(far, 1 << 16, 16));
        assertThat(outcome(a.submit(request(Operation.WRITE, there, Optional.empty()))))
                .isInstanceOf(TransferOutcome.Done.class);
        b.close();
        assertThat(outcome(a.submit(request(Operation.WRITE, there, Optional.empty()))))
                .isInstanceOfSatisfying(
                        TransferOutcome.Failed.class,
                        failed ->
                                assertThat(failed.failure().code()).isEqualTo(ErrorCode.PEER_LOST));
        assertThat(told).contains("a sees b#7 SUSPECT").doesNotContain("a sees b#7 LOST");
    }

    /// Neither those that came with it nor those that follow.
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aReceiverThatFailsLosesOneNotification(boolean error) throws Exception {
        a.loadPeer(B, b.localMetadata());
        assertThat(told.poll(40, TimeUnit.SECONDS)).isEqualTo("a sees b#7 KNOWN");
        onNotification.set(() -> {
            if (error) {
                throw new OutOfMemoryError("thrown by the test");
            }
            throw new IllegalStateException("thrown by the test");
        });
        for (int i = 0; i < 50; i++) {
            a.notify(B, new byte[] {'n'});
        }
        for (int i = 1; i < 50; i++) {
            assertThat(told.poll(40, TimeUnit.SECONDS)).isEqualTo("b hears a#1: n");
        }
    }

    @Test
    void tellsOfNotificationsThatWereAcceptedAndNotDelivered() throws Exception {
        a.loadPeer(B, b.localMetadata());
        b.close();
        a.notify(B, "lost".getBytes(StandardCharsets.UTF_8));
        var event = Objects.requireNonNull(events.poll(40, TimeUnit.SECONDS));
        assertThat(event)
                .isInstanceOfSatisfying(
                        TraceEvent.Incident.class,
                        incident -> {
                            assertThat(incident.kind()).isEqualTo("notification not delivered");
                            assertThat(incident.by()).isEqualTo("MOONCAKE");
                            assertThat(incident.details())
                                    .containsEntry("peer", B.toString())
                                    .containsEntry("code", "PEER_LOST")
                                    .containsKey("detail");
                        });
        assertThat(told).contains("a sees " + B + " KNOWN");
        assertThat(told.stream().filter(line -> line.endsWith("SUSPECT"))).hasSize(1);
    }

    @Test
    void tellsOfNotificationsThatWaitWhenItCloses() throws Exception {
        try (var silent = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            a.loadPeer(
                    B,
                    MooncakePeer.Section.encode(
                            "127.0.0.1:" + silent.getLocalPort(), "", 0, List.of()));
            for (int i = 0; i < 10; i++) {
                a.notify(B, new byte[] {(byte) i});
            }
            try (var _ = silent.accept();
                    var _ = silent.accept()) { // both senders are on their way
                a.close();
            }
        }
        var details = new ArrayList<Map<String, String>>(); // each is told of, once
        while (details.size() < 10) {
            var event = Objects.requireNonNull(events.poll(40, TimeUnit.SECONDS), "an incident");
            details.add(((TraceEvent.Incident) event).details());
        }
        assertThat(events).isEmpty();
        // The two on their way end by the close too, or by their peer's.
        var waited =
                Map.of(
                        "peer",
                        B.toString(),
                        "code",
                        "CLOSED",
                        "detail",
                        "the backend was closed first");
        assertThat(details).filteredOn(waited::equals).hasSize(8);
    }

    /// Who has no metadata, as Mooncake processes and strangers.
    @ParameterizedTest
    @CsvSource({"1, false", "2, false", "1, true", "2, true"})
    void whoDoesNotNameTheKeyReachesOpenMemoryOnly(int version, boolean open) throws Exception {
        b.close();
        var options = Map.of("open_memory", open, "shared_memory", false);
        b = open(B, options);
        far.fill((byte) 0x33);
        b.register(new MemoryRange.Host(far));
        var section = MooncakePeer.Section.decode(B, b.localMetadata());
        var stranger = new PlainClient(section.segmentName(), version);
        var read = stranger.read(far.address(), 64);
        stranger.write(far.address(), new byte[] {1, 2, 3, 4});

        assertThat(read.length).isEqualTo(open ? 64 + 8 * (version - 1) : 8 * (version - 1));
        assertThat(far.get(ValueLayout.JAVA_BYTE, 0)).isEqualTo((byte) (open ? 1 : 0x33));
        assertThat(batchWrite(section, 0)).as("no key").isEqualTo(open);
        assertThat(batchWrite(section, section.memoryKey() + 2)).as("another key").isFalse();
        assertThat(batchWrite(section, section.memoryKey())).as("the key").isTrue();

        a.close(); // the rest over TCP
        a = open(A, options);
        near.fill((byte) 0x44);
        a.register(new MemoryRange.Host(near));
        a.loadPeer(B, b.localMetadata());
        var there = a.prepare(Optional.of(B), list(far, 1 << 16, 16));
        for (var operation : Operation.values()) {
            assertThat(outcome(a.submit(request(operation, there, Optional.empty()))))
                    .isInstanceOf(TransferOutcome.Done.class);
        }
        assertThat(near.mismatch(far)).isEqualTo(-1);
    }

    /// Whether the far side takes a byte from a kvferry engine that names a key.
    private static boolean batchWrite(MooncakePeer.Section to, long key) {
        var config = EngineConfig.from(Map.of("shared-memory", "false"));
        try (var engine = JavaTransferEngine.start(config)) {
            var source = engine.allocate(8);
            var request =
                    new EngineRequest(
                            EngineRequest.Operation.WRITE,
                            to.segmentName(),
                            Ranges.of(source.address(), to.starts()[0], 8),
                            Deadline.in(Duration.ofSeconds(30)),
                            "",
                            0,
                            key,
                            Optional.empty());
            return engine.transfer(request) instanceof EngineOutcome.Completed;
        }
    }

    @Test
    void copiesWithinItself() throws Exception {
        a.register(new MemoryRange.Host(near));
        a.register(new MemoryRange.Host(far));
        near.fill((byte) 9);
        Prepared own = a.prepare(Optional.empty(), list(far, 1 << 16, 16));
        assertThat(outcome(a.submit(request(Operation.WRITE, own, Optional.empty()))))
                .isInstanceOf(TransferOutcome.Done.class);
        assertThat(near.mismatch(far)).isEqualTo(-1);
    }
}
