// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.gpu.NcclDouble;
import io.kvferry.backend.nccl.gpu.NcclDouble.Knob;
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
import io.kvferry.toolkit.zmtp.SideChannel;

import org.junit.jupiter.api.Test;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// A prefiller that speaks as vLLM's, in a JVM of its own, is killed while it puts tensors, and
/// comes back under its address. NCCL is the double, across processes.
class VllmKillTest {
    private static final Duration SOON = Duration.ofSeconds(100);
    private static final String IDENTITY = "127.0.0.1:9";
    private static final int LAYERS = 3;
    private static final int BLOCKS = 5;
    private static final int KILLS = 3;
    private static final long SEED = System.nanoTime();

    /// Puts a prompt for each line, with the id that it says.
    public static final class Prefiller {
        public static void main(String[] arguments) throws IOException {
            var nccl = NcclDouble.load(Path.of(arguments[0]));
            nccl.set(Knob.ACROSS, 1);
            var lanes = lanes(nccl);
            var channel = new SideChannel("prefiller");
            var socket = channel.connect("tcp://" + arguments[1], IDENTITY, Deadline.in(SOON));
            var id = lanes.uniqueId();
            socket.send(new VllmMessage.New(id).encode());
            var lane = lanes.open("decoder", id, 0);
            lane.awaitReady();
            var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (var line = in.readLine(); line != null; line = in.readLine()) {
                for (int layer = 0; layer < LAYERS; layer++) {
                    var shape = TensorForm.Shape.FLASH_ATTN;
                    var put =
                            new VllmMessage.Put(
                                    line + "#" + layer,
                                    VllmTensors.shape(shape, BLOCKS),
                                    "bfloat16");
                    socket.send(put.encode());
                    if (socket.receive(Deadline.in(SOON))[0] != '0') {
                        break;
                    }
                    var tensor = VllmTensors.tensor(shape, layer, BLOCKS);
                    var buffer = lane.buffer(tensor.length * 2L);
                    MemorySegment.copy(
                            tensor, 0, buffer, ValueLayout.JAVA_SHORT_UNALIGNED, 0, tensor.length);
                    lane.send(tensor.length * 2L);
                    System.out.println(layer);
                }
            }
            Runtime.getRuntime().halt(0);
        }
    }

    private static TensorLanes lanes(NcclDouble nccl) {
        return new TensorLanes(
                "lanes",
                nccl.library(),
                nccl.driver(),
                new TensorLanes.Limits(SOON, SOON, 64 << 20, 0));
    }

    private static Process start(NcclDouble nccl, String address) throws IOException {
        return new ProcessBuilder(
                        ProcessHandle.current().info().command().orElse("java"),
                        "-XX:+UseSerialGC",
                        "-XX:TieredStopAtLevel=1",
                        "--enable-native-access=ALL-UNNAMED",
                        "-cp",
                        System.getProperty("java.class.path"),
                        Prefiller.class.getName(),
                        nccl.file().toString(),
                        address)
                .redirectError(ProcessBuilder.Redirect.DISCARD)
                .start();
    }

    private static void tell(Process process, String id) throws IOException {
        process.getOutputStream().write((id + "\n").getBytes(StandardCharsets.UTF_8));
        process.getOutputStream().flush();
    }

    @Test
    void aPrefillerThatIsKilledCostsItsRequestsOnly() throws Exception {
        var random = new Random(SEED);
        var nccl = NcclDouble.load();
        nccl.reset();
        nccl.set(Knob.ACROSS, 1);
        nccl.set(Knob.DELAY_US, 2_000);
        long blockBytes = 2L * 4 * 2 * 8 * 2;
        try (var arena = Arena.ofShared();
                var pool = new BuddyStagingPool(1 << 20)) {
            var regions = new ArrayList<KvRegion>();
            for (int i = 0; i < LAYERS; i++) {
                var memory = new MemoryRange.Host(arena.allocate(BLOCKS * blockBytes, 64));
                regions.add(new KvRegion("" + i, i, 0, memory, BLOCKS, blockBytes, blockBytes));
            }
            var format = new KvFormat.Heads(DType.BFLOAT16, KvLayout.LBNHC, 2, 8);
            var group =
                    new KvCacheGroup(
                            0,
                            KvCacheGroup.Kind.FULL_ATTENTION,
                            format,
                            List.of("0", "1", "2"),
                            4,
                            blockBytes);
            var form =
                    new TensorForm(
                            new KvCacheSpec(List.of(group), BLOCKS),
                            regions,
                            TensorForm.Shape.FLASH_ATTN);
            try (var channel = new SideChannel("decoder");
                    var exchange =
                            new VllmExchange(
                                    lanes(nccl),
                                    form,
                                    channel,
                                    SOON,
                                    SOON,
                                    new VllmExchange.Staging(pool, "test", 1 << 20, SOON))) {
                var address = exchange.listen("127.0.0.1", "127.0.0.1", 0);
                for (int i = 0; i <= KILLS; i++) {
                    boolean killed = i < KILLS;
                    var process = start(nccl, address);
                    try {
                        var outcome = load(exchange, i);
                        tell(process, id(i));
                        if (killed) {
                            awaitLine(process, 1 + random.nextInt(LAYERS));
                            LockSupport.parkNanos(random.nextInt(2_000_000));
                            process.destroyForcibly().onExit().join();
                        }
                        check(outcome.get(SOON.toSeconds(), TimeUnit.SECONDS), form, killed);
                    } finally {
                        process.destroyForcibly().onExit().join();
                    }
                }
                assertThat(exchange.staged()).isZero();
            }
        }
        nccl.assertClean();
    }

    /// So many tensors were sent, or the process says no more. One at least: who is killed before
    /// it has connected is not missed by anybody.
    private static void awaitLine(Process process, int tensors) throws IOException {
        var out = process.inputReader(StandardCharsets.UTF_8);
        for (int i = 0; i < tensors; i++) {
            var _ = out.readLine();
        }
    }

    private static String id(int number) {
        return "cmpl-___prefill_addr_%s___decode_addr_127.0.0.1:8_%032x-0"
                .formatted(IDENTITY, number);
    }

    private static CompletableFuture<Outcome> load(VllmExchange exchange, int number) {
        var ended = new CompletableFuture<Outcome>();
        exchange.load(
                false,
                id(number),
                PeerAddress.parse(IDENTITY).orElseThrow(),
                BLOCKS,
                new int[] {0, 1, 2, 3, 4},
                Deadline.in(SOON),
                ended::complete);
        return ended;
    }

    private static void check(Outcome outcome, TensorForm form, boolean killed) {
        switch (outcome) {
            case Outcome.Failed(var why) -> {
                assertThat(killed).as("%s (seed %d)", why, SEED).isTrue();
                assertThat(EnumSet.of(ErrorCode.PEER_LOST, ErrorCode.IO)).contains(why.code());
            }
            case Outcome.Done _ -> {
                var heap = MemorySegment.ofArray(new byte[(int) form.bytes(BLOCKS)]);
                for (int layer = 0; layer < LAYERS; layer++) {
                    form.gather(layer, new int[] {0, 1, 2, 3, 4}, heap);
                    assertThat(heap.toArray(ValueLayout.JAVA_SHORT_UNALIGNED))
                            .isEqualTo(
                                    VllmTensors.tensor(TensorForm.Shape.FLASH_ATTN, layer, BLOCKS));
                }
            }
        }
    }
}
