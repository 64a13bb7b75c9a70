// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

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
import io.kvferry.toolkit.staging.BuddyStagingPool;
import io.kvferry.toolkit.zmtp.DealerSocket;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/// One rank against a peer that says what vLLM's P2pNcclEngine says, written here from its
/// messages, with tensors that are computed here from vLLM's shapes. The peers run over the C
/// double of NCCL.
class VllmExchangeTest {
    private static final Duration SOON = Duration.ofSeconds(50);
    private static final Duration SHORT = Duration.ofSeconds(2);
    private static final int LAYERS = 3;
    private static final int BLOCKS = 12;
    private static final int TOKENS = 4;
    private static final int HEADS = 2;
    private static final int DIM = 8;
    private static final String FAKE = "127.0.0.1:9";
    private static final String ID =
            "cmpl-___prefill_addr_"
                    + FAKE
                    + "___decode_addr_127.0.0.1:8_0123456789abcdef0123456789abcdef-0";

    private final NcclDouble nccl = NcclDouble.load();
    private final Arena arena = Arena.ofShared();
    private final SideChannel ownChannel = new SideChannel("own");
    private final SideChannel fakeChannel = new SideChannel("fake");
    private final BuddyStagingPool pool = new BuddyStagingPool(1 << 20);
    private final List<AutoCloseable> open = new ArrayList<>();
    private TensorLanes fakeLanes;
    private @Nullable VllmExchange started;
    private String address = "";
    private List<KvRegion> regions = List.of();
    private @Nullable TensorForm form;

    @BeforeEach
    void reset() {
        nccl.reset();
        fakeLanes = lanes(SOON, SOON);
    }

    private TensorLanes lanes(Duration setUp, Duration turn) {
        return new TensorLanes(
                "lanes",
                nccl.library(),
                nccl.driver(),
                new TensorLanes.Limits(setUp, turn, 64 << 20, 0));
    }

    /// What takes long in a test, and is not what it is about, has all the time.
    private static final class Terms {
        private Duration setUp = SOON;
        private Duration turn = SOON;
        private Duration answer = SOON;
        private Duration staged = SOON;
        private long room = 1 << 20;
    }

    private void start(TensorForm.Shape shape, KvLayout layout, Terms terms) {
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
        var exchange =
                new VllmExchange(
                        lanes(terms.setUp, terms.turn),
                        made,
                        ownChannel,
                        terms.answer,
                        Duration.ofMillis(1),
                        new VllmExchange.Staging(pool, "test", terms.room, terms.staged));
        started = exchange;
        address = exchange.listen("127.0.0.1", "127.0.0.1", 0);
    }

    private VllmExchange exchange() {
        return Objects.requireNonNull(started);
    }

    private void start(Terms terms) {
        start(TensorForm.Shape.FLASH_ATTN, KvLayout.LBNHC, terms);
    }

    private void start() {
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

    // ---- what vLLM's caches look like

    /// An element of K (0) or V (1), unlike any other.
    private static short element(int layer, int kv, int block, int token, int head, int at) {
        return (short)
                (((((layer * 2 + kv) * 16 + block) * TOKENS + token) * HEADS + head) * DIM + at);
    }

    /// The tensor of a layer, of the first `blocks` blocks of a prompt, as vLLM extracts it.
    static short[] tensor(TensorForm.Shape shape, int layer, int blocks) {
        boolean flashAttn = shape == TensorForm.Shape.FLASH_ATTN;
        var out = new short[2 * blocks * TOKENS * HEADS * DIM];
        int i = 0;
        for (int a = 0; a < (flashAttn ? 2 : blocks); a++) {
            for (int b = 0; b < (flashAttn ? blocks : 2); b++) {
                for (int n = 0; n < TOKENS; n++) {
                    for (int h = 0; h < HEADS; h++) {
                        for (int d = 0; d < DIM; d++) {
                            out[i++] =
                                    flashAttn
                                            ? element(layer, a, b, n, h, d)
                                            : element(layer, b, a, n, h, d);
                        }
                    }
                }
            }
        }
        return out;
    }

    static long[] shape(TensorForm.Shape shape, int blocks) {
        return shape == TensorForm.Shape.FLASH_ATTN
                ? new long[] {2, blocks, TOKENS, HEADS, DIM}
                : new long[] {blocks, 2, TOKENS, HEADS, DIM};
    }

    /// Element of the engine's own cache: `[N][H][2][D]`, or `[H][N][2][D]`.
    private short cached(KvLayout layout, int layer, int block, int n, int h, int kv, int d) {
        int inner = layout.isHeadMajor() ? h * TOKENS + n : n * HEADS + h;
        return regions.get(layer)
                .block(block)
                .get(ValueLayout.JAVA_SHORT_UNALIGNED, ((inner * 2L + kv) * DIM + d) * 2);
    }

    private void fill(KvLayout layout, int[] ids) {
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
    private void assertLoaded(KvLayout layout, int first, int[] ids) {
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

    private void assertUntouched() {
        for (var region : regions) {
            assertThat(region.segment().toArray(ValueLayout.JAVA_BYTE)).containsOnly(0);
        }
    }

    // ---- a peer that connects, as vLLM's prefiller (PUT) and decoder (GET) do

    private final class Caller implements AutoCloseable {
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

    private static String tensorId(int layer) {
        return ID + "#model.layers." + layer + ".self_attn.attn";
    }

    private static final class Ended {
        private final CompletableFuture<Outcome> outcome = new CompletableFuture<>();

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

    private Ended load(
            boolean gets, PeerAddress peer, int promptBlocks, int[] ids, Duration limit) {
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

    private Ended load(int promptBlocks, int... ids) {
        return load(false, PeerAddress.parse(FAKE).orElseThrow(), promptBlocks, ids, SOON);
    }

    @ParameterizedTest
    @CsvSource({
        "FLASH_ATTN,LBNHC,false",
        "FLASH_ATTN,LBHNC,true",
        "FLASHINFER,LBNHC,true",
        "FLASHINFER,LBHNC,false"
    })
    void tensorsThatVllmPutsEndInTheBlocks(
            TensorForm.Shape shape, KvLayout layout, boolean asksFirst) {
        start(shape, layout, new Terms());
        var early = asksFirst ? load(5, 7, 2, 9) : null;
        var vllm = new Caller(FAKE);
        for (int layer = 0; layer < LAYERS; layer++) {
            vllm.put(layer, shape, 6); // one block more than the prompt has
        }
        if (!asksFirst) {
            assertUntouched();
        }
        var ended = early != null ? early : load(5, 7, 2, 9);
        assertThat(ended.outcome()).isInstanceOf(Outcome.Done.class);
        assertLoaded(layout, 2, new int[] {7, 2, 9});
        assertThat(vllm.announce(0, shape, 6)).isEqualTo(VllmMessage.PUT_NO_MEMORY);
    }

    @Test
    void aTensorOfAnotherShapeOrTypeIsRefusedAndFailsItsRequest() {
        start();
        var vllm = new Caller(FAKE);
        long[][] wrong = {
            {5, 2, TOKENS, HEADS, DIM},
            {2, 5, TOKENS, HEADS + 1, DIM},
            {2, BLOCKS + 1, TOKENS, HEADS, DIM},
            {2, 0, TOKENS, HEADS, DIM},
            {2},
            {}
        };
        for (var each : wrong) {
            assertThat(vllm.ask(new VllmMessage.Put(tensorId(0), each, "bfloat16")))
                    .as(Arrays.toString(each))
                    .isEqualTo(VllmMessage.PUT_NO_MEMORY);
        }
        load(5, 1, 2).assertFailed(ErrorCode.INCOMPATIBLE);
        assertUntouched();
    }

    @Test
    void aTensorOfAnotherTypeFailsTheRequestThatWaits() {
        start();
        var ended = load(5, 1, 2);
        var vllm = new Caller(FAKE);
        vllm.put(0, TensorForm.Shape.FLASH_ATTN, 5);
        var put =
                new VllmMessage.Put(tensorId(1), new long[] {2, 5, TOKENS, HEADS, DIM}, "float16");
        assertThat(vllm.ask(put)).isEqualTo(VllmMessage.PUT_NO_MEMORY);
        ended.assertFailed(ErrorCode.INCOMPATIBLE);
        assertUntouched();
    }

    @Test
    void aTensorThatIsPutTwiceFailsTheRequest() {
        start();
        var vllm = new Caller(FAKE);
        vllm.put(0, TensorForm.Shape.FLASH_ATTN, 5);
        assertThat(vllm.announce(0, TensorForm.Shape.FLASH_ATTN, 5))
                .isEqualTo(VllmMessage.PUT_NO_MEMORY);
        assertThat(vllm.announce(1, TensorForm.Shape.FLASH_ATTN, 5))
                .isEqualTo(VllmMessage.PUT_NO_MEMORY);
        load(5, 1, 2).assertFailed(ErrorCode.ALREADY_ACTIVE);
        assertUntouched();
    }

    @Test
    void fewerBlocksThanThePromptHasAreRefused() {
        start();
        var vllm = new Caller(FAKE);
        for (int layer = 0; layer < LAYERS; layer++) {
            vllm.put(layer, TensorForm.Shape.FLASH_ATTN, 4);
        }
        load(5, 1, 2).assertFailed(ErrorCode.INCOMPATIBLE);
        assertUntouched();
    }

    @Test
    void aTensorThatNeverComesFailsTheRequestInTime() {
        start();
        var vllm = new Caller(FAKE);
        vllm.put(0, TensorForm.Shape.FLASH_ATTN, 5);
        var ended = load(false, PeerAddress.parse(FAKE).orElseThrow(), 5, new int[] {1, 2}, SHORT);
        ended.assertFailed(ErrorCode.TIMEOUT);
        assertUntouched();
    }

    /// The peer says that a tensor follows, and sends none.
    @Test
    void aPeerThatHangsInTheMiddleFailsTheRequestInTime() {
        var terms = new Terms();
        terms.turn = SHORT;
        start(terms);
        var ended = load(5, 1, 2);
        var vllm = new Caller(FAKE);
        assertThat(vllm.announce(0, TensorForm.Shape.FLASH_ATTN, 5)).isEqualTo(VllmMessage.PUT_GO);
        ended.assertFailed(ErrorCode.TIMEOUT);
        assertThat(vllm.announce(1, TensorForm.Shape.FLASH_ATTN, 5))
                .isEqualTo(VllmMessage.PUT_NO_MEMORY);
    }

    @Test
    void aPeerThatIsLostInTheMiddleFailsTheRequestAtOnceAndMayComeBack() {
        start();
        var ended = load(5, 1, 2);
        var vllm = new Caller(FAKE);
        assertThat(vllm.announce(0, TensorForm.Shape.FLASH_ATTN, 5)).isEqualTo(VllmMessage.PUT_GO);
        vllm.close();
        ended.assertFailed(ErrorCode.PEER_LOST);
        assertThat(new Caller(FAKE).announce(1, TensorForm.Shape.FLASH_ATTN, 5))
                .as("what still comes for it")
                .isEqualTo(VllmMessage.PUT_NO_MEMORY);
    }

    /// Nothing is known of its communicator any more when its connection goes.
    @Test
    void aPeerThatIsLostAfterAFailureFailsItsOtherRequestsAtOnce() {
        var terms = new Terms();
        terms.turn = SHORT;
        start(terms);
        var failed = load(5, 1, 2);
        var other = new Ended();
        exchange()
                .load(
                        false,
                        ID.replace("_0123456789", "_9876543210"),
                        PeerAddress.parse(FAKE).orElseThrow(),
                        5,
                        new int[] {3, 4},
                        Deadline.in(SOON.multipliedBy(2)),
                        other.outcome::complete);
        var vllm = new Caller(FAKE);
        assertThat(vllm.announce(0, TensorForm.Shape.FLASH_ATTN, 5)).isEqualTo(VllmMessage.PUT_GO);
        failed.assertFailed(ErrorCode.TIMEOUT);
        assertThat(vllm.announce(1, TensorForm.Shape.FLASH_ATTN, 5))
                .as("the communicator has gone")
                .isEqualTo(VllmMessage.PUT_NO_MEMORY);
        assertThat(other.outcome).isNotDone();
        vllm.close();
        other.assertFailed(ErrorCode.PEER_LOST);
    }

    /// As over a connection that was accepted before, and read after.
    @Test
    void aPeerThatConnectsWhileItClosesLeavesNothing() throws Exception {
        start();
        try (var own = lanes(SOON, SOON)) {
            var parts =
                    new VllmParts(
                            own,
                            Objects.requireNonNull(form),
                            ownChannel,
                            address,
                            new VllmParts.Limits(SOON, SOON, SOON));
            var listening = new ListeningEnd(parts, null, null);
            listening.close();
            var id = fakeLanes.uniqueId();
            listening.onRequest(asker("late"), new VllmMessage.New(id).encode());
            try (var _ = fakeLanes.open("late", id, 0)) {
                await("no communicator", () -> nccl.count(NcclDouble.Count.INITS) == 2);
                await("it stays", () -> nccl.count(NcclDouble.Count.LIVE_COMMS) == 1);
            }
        }
    }

    private static void await(String otherwise, BooleanSupplier condition) {
        var limit = Deadline.in(SOON);
        while (!condition.getAsBoolean()) {
            assertThat(limit.passed()).as(otherwise).isFalse();
            LockSupport.parkNanos(1_000_000);
        }
    }

    /// Whichever is the last: of the others nothing stays.
    @Test
    void aPeerThatConnectsSeveralTimesAtOnceLeavesNothing() {
        start();
        var lanes = new ArrayList<TensorLane>();
        var sockets = new ArrayList<DealerSocket>();
        for (int i = 0; i < 8; i++) {
            sockets.add(fakeChannel.connect("tcp://" + address, FAKE, Deadline.in(SOON)));
        }
        for (var socket : sockets) {
            var id = fakeLanes.uniqueId();
            lanes.add(fakeLanes.open(address, id, 0));
            socket.send(new VllmMessage.New(id).encode());
        }
        for (var lane : lanes) {
            lane.close();
        }
        sockets.forEach(DealerSocket::close);
    }

    private static SideChannel.Asker asker(String identity) {
        return new SideChannel.Asker() {
            @Override
            public boolean answer(byte[] message) {
                return true;
            }

            @Override
            public String identity() {
                return identity;
            }
        };
    }

    @Test
    void whatNobodyAsksForIsBoundedInBytes() {
        long tensor = 4096; // as the pool rounds it
        var terms = new Terms();
        terms.room = 2 * tensor;
        start(terms);
        var vllm = new Caller(FAKE);
        vllm.put(0, TensorForm.Shape.FLASH_ATTN, BLOCKS);
        vllm.put(1, TensorForm.Shape.FLASH_ATTN, BLOCKS);
        assertThat(exchange().staged()).isEqualTo(2 * tensor);
        assertThat(vllm.announce(2, TensorForm.Shape.FLASH_ATTN, BLOCKS))
                .isEqualTo(VllmMessage.PUT_NO_MEMORY);
        assertThat(exchange().staged()).as("a transfer goes whole").isZero();
        load(5, 1, 2).assertFailed(ErrorCode.NO_MEMORY);
    }

    @Test
    void whatNobodyAsksForGoesAfterAWhile() {
        var terms = new Terms();
        terms.staged = Duration.ofMillis(300);
        start(terms);
        new Caller(FAKE).put(0, TensorForm.Shape.FLASH_ATTN, 5);
        var limit = Deadline.in(SOON);
        while (exchange().staged() > 0) {
            assertThat(limit.passed()).as("what nobody asks for stays").isFalse();
            LockSupport.parkNanos(1_000_000);
        }
        load(5, 1, 2).assertFailed(ErrorCode.TIMEOUT);
    }

    @Test
    void withoutACommunicatorEverythingIsRefused() {
        var terms = new Terms();
        terms.setUp = Duration.ofMillis(300);
        start(terms);
        try (var socket = fakeChannel.connect("tcp://" + address, FAKE, Deadline.in(SOON))) {
            for (int i = 0; i < 2; i++) {
                socket.send(
                        new VllmMessage.Put(tensorId(0), new long[] {2, 1, 4, 2, 8}, "bfloat16")
                                .encode());
                assertThat(socket.receive(Deadline.in(SOON))).isEqualTo(VllmMessage.PUT_NO_MEMORY);
                socket.send(new VllmMessage.Get(tensorId(0)).encode());
                assertThat(VllmMessage.decode(socket.receive(Deadline.in(SOON))))
                        .isInstanceOf(VllmMessage.Missing.class);
                socket.send(new byte[] {1, 2, 3}); // not answered
                socket.send(new VllmMessage.New(fakeLanes.uniqueId()).encode());
            }
        }
    }

    // ---- a peer that is connected to

    /// Takes NEW, and hands all other messages to the test.
    private final class Listener implements AutoCloseable {
        record Asked(SideChannel.Asker asker, VllmMessage message) {}

        final BlockingQueue<Asked> asked = new LinkedBlockingQueue<>();
        final CompletableFuture<TensorLane> lane = new CompletableFuture<>();
        final PeerAddress address;

        Listener() {
            var text =
                    fakeChannel.listen(
                            "127.0.0.1",
                            (asker, message) -> {
                                assertThat(asker.identity())
                                        .isEqualTo(VllmExchangeTest.this.address);
                                switch (VllmMessage.decode(message)) {
                                    case VllmMessage.New(var id) -> {
                                        var made = fakeLanes.open(asker.identity(), id, 1);
                                        lane.complete(made);
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

    private Ended put(Listener vllm, int... blocks) {
        var ended = new Ended();
        var sending =
                exchange()
                        .put(ID, vllm.address, blocks, Deadline.in(SOON), ended.outcome::complete);
        sending.available(LAYERS);
        sending.commit();
        return ended;
    }

    @ParameterizedTest
    @CsvSource({"FLASH_ATTN,LBHNC", "FLASHINFER,LBNHC"})
    void putsWhatVllmExpects(TensorForm.Shape shape, KvLayout layout) throws Exception {
        start(shape, layout, new Terms());
        int[] ids = {7, 2, 9};
        fill(layout, ids);
        var vllm = new Listener();
        var ended = put(vllm, ids);
        for (int layer = 0; layer < LAYERS; layer++) {
            var asked = vllm.next();
            var announced = (VllmMessage.Put) asked.message();
            assertThat(announced.tensorId()).isEqualTo(tensorId(layer));
            assertThat(announced.shape()).isEqualTo(shape(shape, 3));
            assertThat(announced.dtype()).isEqualTo("bfloat16");
            var expected = tensor(shape, layer, 3);
            var lane = vllm.lane();
            var buffer = lane.buffer(expected.length * 2L);
            asked.asker().answer(VllmMessage.PUT_GO);
            lane.receive(expected.length * 2L);
            assertThat(
                            buffer.asSlice(0, expected.length * 2L)
                                    .toArray(ValueLayout.JAVA_SHORT_UNALIGNED))
                    .isEqualTo(expected);
        }
        assertThat(ended.outcome()).isInstanceOf(Outcome.Done.class);
    }

    @ParameterizedTest
    @CsvSource({"1,NO_MEMORY", "xyz,PROTOCOL"})
    void anAnswerThatIsNoGoEndsThePut(String answer, ErrorCode code) throws Exception {
        start();
        var vllm = new Listener();
        var ended = put(vllm, 1, 2);
        vllm.next().asker().answer(answer.getBytes(StandardCharsets.US_ASCII));
        ended.assertFailed(code);
        assertThat(vllm.asked).isEmpty();
    }

    @Test
    void aDecoderThatDoesNotAnswerEndsThePutInTime() throws Exception {
        var terms = new Terms();
        terms.answer = Duration.ofMillis(300);
        start(terms);
        var ended = put(new Listener(), 1, 2);
        ended.assertFailed(ErrorCode.TIMEOUT);
    }

    @Test
    void aDecoderThatIsLostEndsThePutAtOnce() throws Exception {
        start();
        var vllm = new Listener();
        var ended = put(vllm, 1, 2);
        vllm.next().asker().answer(VllmMessage.PUT_GO); // and never receives
        fakeChannel.close();
        ended.assertFailed(ErrorCode.PEER_LOST);
    }

    @Test
    void aPutThatIsGivenUpEndsAtOnceAndItsLastLayerIsNeverSent() throws Exception {
        start();
        var vllm = new Listener();
        var ended = new Ended();
        var sending =
                exchange()
                        .put(
                                ID,
                                vllm.address,
                                new int[] {1},
                                Deadline.in(SOON),
                                ended.outcome::complete);
        sending.available(LAYERS);
        for (int layer = 0; layer < LAYERS - 1; layer++) {
            var asked = vllm.next();
            var lane = vllm.lane();
            var _ = lane.buffer(1024);
            asked.asker().answer(VllmMessage.PUT_GO);
            lane.receive(2L * TOKENS * HEADS * DIM * 2);
        }
        assertThat(sending.awaitSent(LAYERS, Deadline.in(SOON))).isTrue();
        sending.abort();
        ended.assertFailed(ErrorCode.CANCELLED);
        assertThat(vllm.asked).isEmpty();
    }

    @Test
    void getsWhatVllmHas() throws Exception {
        start();
        var vllm = new Listener();
        var ended = load(true, vllm.address, 5, new int[] {7, 2, 9}, SOON);
        for (int layer = 0; layer < LAYERS; layer++) {
            var asked = vllm.next();
            assertThat(((VllmMessage.Get) asked.message()).tensorId()).isEqualTo(tensorId(layer));
            var tensor = tensor(TensorForm.Shape.FLASH_ATTN, layer, 5);
            var lane = vllm.lane();
            var buffer = lane.buffer(tensor.length * 2L);
            MemorySegment.copy(
                    tensor, 0, buffer, ValueLayout.JAVA_SHORT_UNALIGNED, 0, tensor.length);
            asked.asker()
                    .answer(
                            new VllmMessage.Found(shape(TensorForm.Shape.FLASH_ATTN, 5), "bfloat16")
                                    .encode());
            lane.send(tensor.length * 2L);
        }
        assertThat(ended.outcome()).isInstanceOf(Outcome.Done.class);
        assertLoaded(KvLayout.LBNHC, 2, new int[] {7, 2, 9});
    }

    @Test
    void aMissOrATensorOfAnotherTypeFailsTheGet() throws Exception {
        start();
        var vllm = new Listener();
        var missed = load(true, vllm.address, 5, new int[] {1}, SOON);
        vllm.next().asker().answer(new VllmMessage.Missing().encode());
        missed.assertFailed(ErrorCode.NOT_FOUND);
        var wrong = load(true, vllm.address, 5, new int[] {1}, SOON);
        vllm.next()
                .asker()
                .answer(
                        new VllmMessage.Found(shape(TensorForm.Shape.FLASH_ATTN, 5), "float16")
                                .encode());
        wrong.assertFailed(ErrorCode.INCOMPATIBLE);
        assertUntouched();
    }

    /// A decoder may hear of the end of a prefill before the engine's next step offers its blocks.
    @Test
    void aGetThatComesBeforeItsOfferWaitsForIt() throws Exception {
        start();
        var vllm = new Caller(FAKE);
        int[] ids = {1};
        fill(KvLayout.LBNHC, ids);
        vllm.socket.send(new VllmMessage.Get(tensorId(0)).encode());
        var ended = new Ended();
        exchange().offer(ID, ids, ended.outcome::complete);
        assertThat(VllmMessage.decode(vllm.socket.receive(Deadline.in(SOON))))
                .isInstanceOf(VllmMessage.Found.class);
        var _ = vllm.lane.buffer(1024);
        vllm.lane.receive(2L * TOKENS * HEADS * DIM * 2);
        assertThat(ended.outcome).isNotDone();
        exchange().withdraw(ID);
        ended.assertFailed(ErrorCode.CANCELLED);
    }

    @Test
    void offersWhatVllmGetsUntilItHasEachLayer() throws Exception {
        start();
        int[] ids = {7, 2, 9};
        fill(KvLayout.LBNHC, ids);
        var vllm = new Caller(FAKE);
        var ended = new Ended();
        exchange().offer(ID, ids, ended.outcome::complete);
        for (int layer = 0; layer < LAYERS; layer++) {
            var expected = tensor(TensorForm.Shape.FLASH_ATTN, layer, 3);
            var buffer = vllm.lane.buffer(expected.length * 2L);
            var found =
                    (VllmMessage.Found)
                            VllmMessage.decode(vllm.ask(new VllmMessage.Get(tensorId(layer))));
            assertThat(found.shape()).isEqualTo(shape(TensorForm.Shape.FLASH_ATTN, 3));
            vllm.lane.receive(expected.length * 2L);
            assertThat(
                            buffer.asSlice(0, expected.length * 2L)
                                    .toArray(ValueLayout.JAVA_SHORT_UNALIGNED))
                    .isEqualTo(expected);
        }
        assertThat(ended.outcome()).isInstanceOf(Outcome.Done.class);
        assertThat(VllmMessage.decode(vllm.ask(new VllmMessage.Get(tensorId(0)))))
                .isInstanceOf(VllmMessage.Missing.class);
    }
}
