// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import static io.kvferry.backend.nccl.vllm.VllmTensors.BLOCKS;
import static io.kvferry.backend.nccl.vllm.VllmTensors.DIM;
import static io.kvferry.backend.nccl.vllm.VllmTensors.HEADS;
import static io.kvferry.backend.nccl.vllm.VllmTensors.LAYERS;
import static io.kvferry.backend.nccl.vllm.VllmTensors.TOKENS;
import static io.kvferry.backend.nccl.vllm.VllmTensors.element;
import static io.kvferry.backend.nccl.vllm.VllmTensors.shape;
import static io.kvferry.backend.nccl.vllm.VllmTensors.tensor;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.gpu.NcclDouble;
import io.kvferry.backend.nccl.gpu.TensorLane;
import io.kvferry.backend.nccl.gpu.TensorLanes;
import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.backend.nccl.wire.VllmMessage;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.toolkit.staging.BuddyStagingPool;
import io.kvferry.toolkit.zmtp.DealerSocket;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.UnaryOperator;

/// One rank against peers that say what vLLM's P2pNcclEngine says, written here from its messages.
/// The peers run over the C double of NCCL. What is open is closed after each test, and nothing may
/// stay.
abstract class ExchangeCase {
    static final Duration SOON = Duration.ofSeconds(50);
    static final Duration SHORT = Duration.ofSeconds(2);
    static final String FAKE = "127.0.0.1:9";
    static final String ID =
            "cmpl-___prefill_addr_"
                    + FAKE
                    + "___decode_addr_127.0.0.1:8_0123456789abcdef0123456789abcdef-0";

    final NcclDouble nccl = NcclDouble.load();
    final Arena arena = Arena.ofShared();
    final SideChannel ownChannel = new SideChannel("own");
    final SideChannel fakeChannel = new SideChannel("fake");
    final BuddyStagingPool pool = new BuddyStagingPool(1 << 20);
    final List<AutoCloseable> open = new ArrayList<>();
    TensorLanes fakeLanes;
    @Nullable TensorLanes ownLanes;
    @Nullable VllmExchange started;
    String address = "";
    List<KvRegion> regions = List.of();
    @Nullable TensorForm form;

    @BeforeEach
    void reset() {
        nccl.reset();
        fakeLanes = lanes(SOON, SOON);
    }

    TensorLanes lanes(Duration setUp, Duration turn) {
        return new TensorLanes(
                "lanes",
                nccl.library(),
                nccl.driver(),
                new TensorLanes.Limits(setUp, turn, 64 << 20, 0));
    }

    /// What takes long in a test, and is not what it is about, has all the time.
    static final class Terms {
        Duration setUp = SOON;
        Duration turn = SOON;
        Duration answer = SOON;
        Duration staged = SOON;
        long room = 1 << 20;

        /// Between the exchange and the pool.
        UnaryOperator<StagingPool> between = pool -> pool;
    }

    void start(TensorForm.Shape shape, KvLayout layout, Terms terms) {
        long blockBytes = 2L * TOKENS * HEADS * DIM * 2;
        var all = new ArrayList<KvRegion>();
        var names = new ArrayList<String>();
        for (int i = 0; i < LAYERS; i++) {
            names.add("model.layers." + i + ".self_attn.attn");
            var memory = arena.allocate(BLOCKS * blockBytes, 64);
            all.add(
                    new KvRegion(
                            names.get(i),
                            i,
                            0,
                            new MemoryRange.Host(memory),
                            BLOCKS,
                            blockBytes,
                            blockBytes));
        }
        regions = all;
        var format = new KvFormat.Heads(DType.BFLOAT16, layout, HEADS, DIM);
        var group =
                new KvCacheGroup(
                        0, KvCacheGroup.Kind.FULL_ATTENTION, format, names, TOKENS, blockBytes);
        var made = new TensorForm(new KvCacheSpec(List.of(group), BLOCKS), all, shape);
        form = made;
        var lanes = lanes(terms.setUp, terms.turn);
        ownLanes = lanes;
        var exchange =
                new VllmExchange(
                        lanes,
                        made,
                        ownChannel,
                        terms.answer,
                        Duration.ofMillis(1),
                        new VllmExchange.Staging(
                                terms.between.apply(pool), "test", terms.room, terms.staged));
        started = exchange;
        address = exchange.listen("127.0.0.1", "127.0.0.1", 0);
    }

    VllmExchange exchange() {
        return Objects.requireNonNull(started);
    }

    void start(Terms terms) {
        start(TensorForm.Shape.FLASH_ATTN, KvLayout.LBNHC, terms);
    }

    void start() {
        start(new Terms());
    }

    @AfterEach
    void nothingIsLeft() throws Exception {
        for (var each : open) {
            each.close();
        }
        ownChannel.close();
        fakeChannel.close();
        exchange().close();
        fakeLanes.close();
        nccl.assertClean();
        var limit = Deadline.in(SOON);
        while (pool.available() < pool.capacity()) {
            assertThat(limit.passed()).as("staging memory stays in use").isFalse();
            LockSupport.parkNanos(1_000_000);
        }
        pool.close();
        arena.close();
    }

    /// Element of the engine's own cache: `[N][H][2][D]`, or `[H][N][2][D]`.
    short cached(KvLayout layout, int layer, int block, int n, int h, int kv, int d) {
        int inner = layout.isHeadMajor() ? h * TOKENS + n : n * HEADS + h;
        return regions.get(layer)
                .block(block)
                .get(ValueLayout.JAVA_SHORT_UNALIGNED, ((inner * 2L + kv) * DIM + d) * 2);
    }

    void fill(KvLayout layout, int[] ids) {
        for (int layer = 0; layer < LAYERS; layer++) {
            for (int b = 0; b < ids.length; b++) {
                for (int i = 0; i < 2 * TOKENS * HEADS * DIM; i++) {
                    int d = i % DIM;
                    int kv = i / DIM % 2;
                    int outer = i / DIM / 2;
                    int n = layout.isHeadMajor() ? outer % TOKENS : outer / HEADS;
                    int h = layout.isHeadMajor() ? outer / TOKENS : outer % HEADS;
                    regions.get(layer)
                            .block(ids[b])
                            .set(
                                    ValueLayout.JAVA_SHORT_UNALIGNED,
                                    i * 2L,
                                    element(layer, kv, b, n, h, d));
                }
            }
        }
    }

    /// The blocks `first` and following of the prompt lie in these of the cache.
    void assertLoaded(KvLayout layout, int first, int[] ids) {
        for (int layer = 0; layer < LAYERS; layer++) {
            for (int b = 0; b < ids.length; b++) {
                for (int n = 0; n < TOKENS; n++) {
                    for (int h = 0; h < HEADS; h++) {
                        for (int kv = 0; kv < 2; kv++) {
                            for (int d = 0; d < DIM; d++) {
                                assertThat(cached(layout, layer, ids[b], n, h, kv, d))
                                        .isEqualTo(element(layer, kv, first + b, n, h, d));
                            }
                        }
                    }
                }
            }
        }
    }

    void assertUntouched() {
        for (var region : regions) {
            assertThat(region.segment().toArray(ValueLayout.JAVA_BYTE)).containsOnly(0);
        }
    }

    static String tensorId(int layer) {
        return ID + "#model.layers." + layer + ".self_attn.attn";
    }

    static final class Ended {
        final CompletableFuture<Outcome> outcome = new CompletableFuture<>();

        Outcome outcome() {
            return outcome.orTimeout(SOON.toSeconds(), TimeUnit.SECONDS).join();
        }

        void assertFailed(ErrorCode code) {
            assertThat(outcome())
                    .isInstanceOfSatisfying(
                            Outcome.Failed.class,
                            failed ->
                                    assertThat(failed.failure().code())
                                            .as(failed.failure().message())
                                            .isEqualTo(code));
        }
    }

    Ended load(boolean gets, PeerAddress peer, int promptBlocks, int[] ids, Duration limit) {
        var ended = new Ended();
        exchange()
                .load(
                        gets,
                        ID,
                        peer,
                        promptBlocks,
                        ids,
                        Deadline.in(limit),
                        ended.outcome::complete);
        return ended;
    }

    Ended load(int promptBlocks, int... ids) {
        return load(false, PeerAddress.parse(FAKE).orElseThrow(), promptBlocks, ids, SOON);
    }

    final class Caller implements AutoCloseable {
        final DealerSocket socket;
        final TensorLane lane;

        Caller(String identity) {
            socket = fakeChannel.connect("tcp://" + address, identity, Deadline.in(SOON));
            var id = fakeLanes.uniqueId();
            socket.send(new VllmMessage.New(id).encode());
            lane = fakeLanes.open(address, id, 0);
            lane.awaitReady();
            open.add(this);
        }

        byte[] ask(VllmMessage message) {
            socket.send(message.encode());
            return socket.receive(Deadline.in(SOON));
        }

        byte[] announce(int layer, TensorForm.Shape shape, int blocks) {
            return ask(new VllmMessage.Put(tensorId(layer), shape(shape, blocks), "bfloat16"));
        }

        void put(int layer, TensorForm.Shape shape, int blocks) {
            assertThat(announce(layer, shape, blocks)).isEqualTo(VllmMessage.PUT_GO);
            var tensor = tensor(shape, layer, blocks);
            var buffer = lane.buffer(tensor.length * 2L);
            MemorySegment.copy(
                    tensor, 0, buffer, ValueLayout.JAVA_SHORT_UNALIGNED, 0, tensor.length);
            lane.send(tensor.length * 2L);
        }

        @Override
        public void close() {
            socket.close();
            lane.close();
        }
    }

    /// Takes NEW, and hands all other messages to the test.
    final class Listener implements AutoCloseable {
        record Asked(SideChannel.Asker asker, VllmMessage message) {}

        final BlockingQueue<Asked> asked = new LinkedBlockingQueue<>();
        final CompletableFuture<TensorLane> lane = new CompletableFuture<>();
        final AtomicInteger links = new AtomicInteger();
        final PeerAddress address;

        Listener() {
            var text =
                    fakeChannel.listen(
                            "127.0.0.1",
                            (asker, message) -> {
                                assertThat(asker.identity()).isEqualTo(ExchangeCase.this.address);
                                switch (VllmMessage.decode(message)) {
                                    case VllmMessage.New(var id) -> {
                                        var made = fakeLanes.open(asker.identity(), id, 1);
                                        lane.complete(made);
                                        links.incrementAndGet();
                                    }
                                    case VllmMessage other -> asked.add(new Asked(asker, other));
                                }
                            });
            address = PeerAddress.parse(text.substring("tcp://".length())).orElseThrow();
            open.add(this);
        }

        Asked next() throws InterruptedException {
            return Objects.requireNonNull(asked.poll(SOON.toSeconds(), TimeUnit.SECONDS));
        }

        TensorLane lane() {
            var made = lane.orTimeout(SOON.toSeconds(), TimeUnit.SECONDS).join();
            made.awaitReady();
            return made;
        }

        @Override
        public void close() {
            if (lane.isDone()) {
                lane.join().close();
            }
        }
    }
}
