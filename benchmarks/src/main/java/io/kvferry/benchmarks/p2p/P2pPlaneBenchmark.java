// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.p2p;

import io.kvferry.backend.mooncake.te.EngineRequest.Operation;
import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.plane.HostPlane;
import io.kvferry.backend.nccl.wire.CacheShape;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.backend.nccl.wire.PromptMark;
import io.kvferry.backend.nccl.wire.VllmMessage;
import io.kvferry.benchmarks.Benchmark;
import io.kvferry.benchmarks.ChildJvm;
import io.kvferry.benchmarks.ProcessCost;
import io.kvferry.benchmarks.Table;
import io.kvferry.benchmarks.mooncake.Iperf;
import io.kvferry.benchmarks.mooncake.LimitProgram;
import io.kvferry.benchmarks.mooncake.Shape;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.net.DataSockets;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.jspecify.annotations.Nullable;

import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/// The host data plane between two JVMs. Compares its rate with plain sockets, with a C loop over
/// as much memory (if there is a compiler) and with iperf3 (if installed), which sends one hot
/// buffer, all with the same number of streams. Also measures the layers of a push, and many small
/// tensors in one transfer versus one message each. The contenders of a row alternate, round by
/// round.
@Command(
        name = "p2p-plane",
        description =
                "Host data plane of P2pNcclConnector beside plain sockets, a C loop over such memory and iperf3, 1 to 4 streams;"
                        + " 32 layers of a push; tensors of 64 KiB in one transfer beside a message each.")
public final class P2pPlaneBenchmark extends Benchmark {
    private static final long[] BLOCKS = {64 << 10, 256 << 10, 1 << 20, 4 << 20};
    private static final int[] STREAMS = {1, 2, 4};
    private static final int ROUNDS = 7;
    private static final int QUICK_ROUNDS = 3;
    private static final int IPERF_SECONDS = 2;
    private static final int CONNECT_MILLIS = 5_000;
    private static final int LAYERS = 32;

    /// Bytes of the tensors that are many.
    private static final int TENSOR = 64 << 10;

    private static final int TENSORS_PER_LAYER = 16;

    @Option(names = "--block", paramLabel = "KIB", description = "Blocks of this size only.")
    private @Nullable Long blockKib;

    @Option(names = "--copies", description = "The plane copies by the kernel within this host.")
    private boolean copies;

    @Option(names = "--checksum", description = "The plane sums, as between hosts.")
    private boolean sums;

    @Override
    protected void run() throws Exception {
        int lanes = Arrays.stream(STREAMS).max().orElseThrow();
        long laneBytes = quick ? 64L << 20 : 256L << 20;
        var ways = copies ? HostPlane.Ways.ANY : HostPlane.Ways.TCP;
        var checksum = sums ? HostPlane.Checksum.ALWAYS : HostPlane.Checksum.AUTO;
        var only = blockKib != null ? blockKib : quick ? Long.valueOf(256) : null;
        try (var run = new Run(lanes, laneBytes, quick ? QUICK_ROUNDS : ROUNDS, ways, checksum)) {
            run.rates(only == null ? BLOCKS : new long[] {only << 10});
            run.layers(lanes * laneBytes / 2 / LAYERS);
            run.tensors();
            // The kernel may not permit copies between these two processes.
            System.out.printf(
                    "# asked for: %s; bytes that the plane received, by way: %s%n",
                    copies ? "copies" : "TCP", run.ask("ways"));
        }
    }

    /// What one contender did in one round.
    private record Turn(long nanos, long cpuNanos) {}

    /// Both processes, while the tables are made.
    private static final class Run implements AutoCloseable {
        private final int rounds;
        private final long laneBytes;
        private final Lanes lanes;
        private final HostPlane plane;
        private final SideChannel channel = new SideChannel("sender");
        private final ChildJvm child;
        private final int sink;
        private final String control;
        private final Optional<Path> iperf = Iperf.find();
        private final Optional<LimitProgram> limit;

        Run(int lanes, long laneBytes, int rounds, HostPlane.Ways ways, HostPlane.Checksum checksum)
                throws IOException, InterruptedException {
            this.plane = HostPlane.open("sender", "127.0.0.1", "127.0.0.1", ways, checksum);
            this.rounds = rounds;
            this.laneBytes = laneBytes;
            this.lanes = new Lanes(lanes, laneBytes);
            child =
                    new ChildJvm(
                            PlaneChild.class,
                            List.of("-Xmx256m"),
                            List.of(
                                    String.valueOf(lanes),
                                    String.valueOf(laneBytes),
                                    ways.name(),
                                    checksum.name()),
                            PlaneChild.LIMIT.multipliedBy(2));
            child.awaitReady();
            var ports = ask("ports").split(" ");
            sink = Integer.parseInt(ports[0]);
            control = ports[1];
            limit = LimitProgram.start(lanes * laneBytes, LimitProgram.Pages.HUGE);
        }

        private String ask(String line) {
            return child.await(child.ask(line));
        }

        private long cpuNanos() {
            return ProcessCost.now().cpuNanos() + Long.parseLong(ask("cpu"));
        }

        void rates(long[] blocks) throws Exception {
            var table =
                    new Table(
                            "block KiB",
                            "streams",
                            "MB a stream",
                            "plane GB/s",
                            "sockets GB/s",
                            "C loop GB/s",
                            "iperf3 GB/s",
                            "of sockets: min, median, max",
                            "of the C loop: min, median, max",
                            "of iperf3",
                            "CPU s/GB",
                            "sockets CPU s/GB",
                            "heap B/block");
            for (long block : blocks) {
                for (int streams : STREAMS) {
                    rate(table, block, streams);
                }
            }
            table.print();
        }

        private void rate(Table table, long block, int streams) throws Exception {
            int count = (int) (laneBytes / block);
            double bytes = (double) streams * laneBytes;
            var planes = new Turn[rounds];
            var plain = new Turn[rounds];
            var loops = new Turn[rounds];
            var iperfs = new double[rounds];
            transfer(streams, block, 1, count); // connects, and compiles for the first row
            sockets(streams);
            long heap = 0;
            for (int round = 0; round < rounds; round++) {
                for (int turn = 0; turn < 4; turn++) {
                    switch ((turn + round) % 4) {
                        case 0 -> {
                            long before = heapBytes();
                            planes[round] = transfer(streams, block, 1, count);
                            heap += heapBytes() - before;
                        }
                        case 1 -> plain[round] = sockets(streams);
                        case 2 -> {
                            if (limit.isPresent()) {
                                loops[round] = loop(block, count, streams);
                            }
                        }
                        default -> {
                            if (iperf.isPresent()) {
                                iperfs[round] = Iperf.rate(iperf.get(), streams, IPERF_SECONDS);
                            }
                        }
                    }
                }
            }
            double rate = bytes / median(planes);
            double iperfRate = Arrays.stream(iperfs).sorted().toArray()[rounds / 2];
            table.row(
                    block >> 10,
                    streams,
                    laneBytes / 1_000_000,
                    rate,
                    bytes / median(plain),
                    limit.isPresent() ? bytes / median(loops) : "-",
                    iperf.isPresent() ? iperfRate : "-",
                    ratios(plain, planes),
                    limit.isPresent() ? ratios(loops, planes) : "-",
                    iperf.isPresent() ? rate / iperfRate : "-",
                    cpu(planes) / bytes,
                    cpu(plain) / bytes,
                    heap / ((long) rounds * streams * count));
        }

        /// As many bytes between two processes in C.
        private Turn loop(long block, int count, int streams) throws IOException {
            var shape = new Shape(Operation.WRITE, (int) block, count, streams);
            var moved = limit.orElseThrow().move(shape, 1, 1);
            return new Turn(moved.nanos(), moved.cpuNanos());
        }

        private static long heapBytes() {
            return ((com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean())
                    .getTotalThreadAllocatedBytes();
        }

        /// All streams at once, from the first byte until the last one is in its place.
        private Turn transfer(int streams, long block, int layers, int blocks) {
            var grants = new ArrayList<String[]>();
            for (int lane = 0; lane < streams; lane++) {
                grants.add(
                        ask("window " + lane + " " + block + " " + layers + " " + blocks)
                                .split(" "));
            }
            long cpu = cpuNanos();
            long begin = System.nanoTime();
            for (int lane = 0; lane < streams; lane++) {
                var words = grants.get(lane);
                send(
                        new Grant(Long.parseLong(words[0]), Long.parseLong(words[1])),
                        words[2],
                        lane,
                        block,
                        layers,
                        blocks);
            }
            long end = begin;
            for (int lane = 0; lane < streams; lane++) {
                end = Math.max(end, Long.parseLong(ask("await " + lane)));
            }
            return new Turn(end - begin, cpuNanos() - cpu);
        }

        private void send(
                Grant grant, String address, int lane, long block, int layers, int blocks) {
            plane.send(
                            address,
                            grant,
                            lanes.placement(lane, block, layers, blocks),
                            Deadline.in(PlaneChild.LIMIT),
                            outcome -> {
                                if (outcome instanceof DataPlane.Outcome.Failed) {
                                    System.err.println("# " + outcome);
                                }
                            })
                    .commit();
        }

        /// As many bytes over plain connections.
        private Turn sockets(int streams) throws Exception {
            long cpu = cpuNanos();
            long begin = System.nanoTime();
            try (var threads = Executors.newVirtualThreadPerTaskExecutor()) {
                var all = new ArrayList<Callable<Long>>();
                for (int lane = 0; lane < streams; lane++) {
                    int own = lane;
                    all.add(() -> stream(own, laneBytes));
                }
                long end = begin;
                for (var done : threads.invokeAll(all)) {
                    end = Math.max(end, done.get());
                }
                return new Turn(end - begin, cpuNanos() - cpu);
            }
        }

        private SocketChannel connect(int lane, long bytes) throws IOException {
            var connection = SocketChannel.open();
            DataSockets.connect(
                    connection,
                    new InetSocketAddress(InetAddress.getByName("127.0.0.1"), sink),
                    CONNECT_MILLIS);
            var head = ByteBuffer.allocateDirect(12).putInt(lane).putLong(bytes).flip();
            while (head.hasRemaining()) {
                var _ = connection.write(head);
            }
            return connection;
        }

        private long stream(int lane, long bytes) throws IOException {
            try (var connection = connect(lane, bytes)) {
                lanes.write(connection, lane, bytes);
                var _ = connection.read(ByteBuffer.allocateDirect(1));
                return System.nanoTime();
            }
        }

        /// One transfer of layers, all computed.
        void layers(long layerBytes) throws Exception {
            int blocks = (int) (layerBytes / (1 << 20));
            double bytes = (double) LAYERS * layerBytes;
            var pushes = new Turn[rounds];
            var ideal = new Turn[rounds];
            var loops = new Turn[rounds];
            var iperfs = new Turn[rounds];
            for (int round = 0; round < rounds; round++) {
                for (int turn = 0; turn < 4; turn++) {
                    switch ((turn + round) % 4) {
                        case 0 -> pushes[round] = transfer(1, 1 << 20, LAYERS, blocks);
                        case 1 -> {
                            var one = sockets(1);
                            long nanos = (long) (one.nanos * bytes / laneBytes);
                            ideal[round] = new Turn(nanos, one.cpuNanos);
                        }
                        case 2 -> {
                            if (limit.isPresent()) {
                                loops[round] = loop(1 << 20, LAYERS * blocks, 1);
                            }
                        }
                        default -> {
                            if (iperf.isPresent()) {
                                double rate = Iperf.rate(iperf.get(), 1, IPERF_SECONDS);
                                iperfs[round] = new Turn((long) (bytes / rate), 0);
                            }
                        }
                    }
                }
            }
            var table =
                    new Table(
                            "layers",
                            "MiB a layer",
                            "last layer usable, ms",
                            "bytes / rate of one socket, ms",
                            "that by push: min, median, max",
                            "C loop, ms",
                            "that by push: min, median, max",
                            "bytes / rate of iperf3, ms",
                            "that by push: min, median, max");
            table.row(
                    LAYERS,
                    layerBytes >> 20,
                    median(pushes) / 1e6,
                    median(ideal) / 1e6,
                    ratios(ideal, pushes),
                    limit.isPresent() ? median(loops) / 1e6 : "-",
                    limit.isPresent() ? ratios(loops, pushes) : "-",
                    iperf.isPresent() ? median(iperfs) / 1e6 : "-",
                    iperf.isPresent() ? ratios(iperfs, pushes) : "-");
            table.print();
        }

        void tensors() throws Exception {
            int count = LAYERS * TENSORS_PER_LAYER;
            var batched = new Turn[rounds];
            var single = new Turn[rounds];
            try (var connection = connect(0, 0)) {
                for (int i = 0; i < 2; i++) { // until both paths are compiled
                    batched();
                    single(connection, count);
                }
                for (int round = 0; round < rounds; round++) {
                    if (round % 2 == 0) {
                        batched[round] = batched();
                    }
                    single[round] = single(connection, count);
                    if (round % 2 == 1) {
                        batched[round] = batched();
                    }
                }
            }
            var table =
                    new Table(
                            "tensors",
                            "KiB",
                            "one transfer, us/tensor",
                            "a message each (protocol 0), us/tensor",
                            "times: min, median, max",
                            "CPU us/tensor",
                            "a message each, CPU us/tensor");
            table.row(
                    count,
                    TENSOR >> 10,
                    median(batched) / 1e3 / count,
                    median(single) / 1e3 / count,
                    ratios(single, batched),
                    cpu(batched) / 1e3 / count,
                    cpu(single) / 1e3 / count);
            table.print();
        }

        /// One offer, and all tensors behind it.
        private Turn batched() {
            long cpu = cpuNanos();
            long begin = System.nanoTime();
            var offer =
                    new PeerMessage.Offer(
                            new PeerMessage.Transfer(
                                    "t",
                                    1,
                                    PeerMessage.ANY_EPOCH,
                                    new CacheShape("c", "l", "d", 0, 1, "x"),
                                    new PromptMark(1, 1),
                                    new int[] {LAYERS, TENSORS_PER_LAYER, TENSOR}));
            if (!(PeerMessage.decode(exchange(offer.encode()))
                    instanceof PeerMessage.Granted granted)) {
                throw new IllegalStateException("the offer was not granted");
            }
            send(granted.grant(), granted.address(), 0, TENSOR, LAYERS, TENSORS_PER_LAYER);
            long end = Long.parseLong(ask("await 0"));
            return new Turn(end - begin, cpuNanos() - cpu);
        }

        /// As vLLM's PUT: a message, its answer, the tensor, and then the next.
        private Turn single(SocketChannel connection, int count) throws IOException {
            long cpu = cpuNanos();
            long begin = System.nanoTime();
            for (int i = 0; i < count; i++) {
                var put =
                        new VllmMessage.Put(
                                "request#model.layers." + i, new long[] {TENSOR}, "uint8");
                if (!Arrays.equals(exchange(put.encode()), VllmMessage.PUT_GO)) {
                    throw new IllegalStateException("the put was not answered");
                }
                lanes.write(connection, 0, TENSOR);
            }
            return new Turn(System.nanoTime() - begin, cpuNanos() - cpu);
        }

        private byte[] exchange(byte[] message) {
            var answer = new CompletableFuture<byte[]>();
            channel.exchange(
                    control,
                    message,
                    PlaneChild.LIMIT,
                    PlaneChild.LIMIT,
                    SideChannel.Turn.SHORT,
                    new SideChannel.Answers() {
                        @Override
                        public SideChannel.Reading onAnswer(byte[] heard) {
                            answer.complete(heard);
                            return SideChannel.Reading.DONE;
                        }

                        @Override
                        public void onLost(Failure failure) {
                            answer.completeExceptionally(failure.toException());
                        }
                    });
            return answer.orTimeout(PlaneChild.LIMIT.toSeconds(), TimeUnit.SECONDS).join();
        }

        private static double median(Turn[] turns) {
            return Arrays.stream(turns).mapToLong(Turn::nanos).sorted().toArray()[turns.length / 2];
        }

        private static double cpu(Turn[] turns) {
            return Arrays.stream(turns)
                    .mapToLong(Turn::cpuNanos)
                    .sorted()
                    .toArray()[turns.length / 2];
        }

        /// Least, median and greatest of the time of one by that of the other, round by round.
        private static String ratios(Turn[] of, Turn[] by) {
            var ratios = new double[of.length];
            for (int i = 0; i < ratios.length; i++) {
                ratios[i] = (double) of[i].nanos / by[i].nanos;
            }
            Arrays.sort(ratios);
            return "%.2f, %.2f, %.2f"
                    .formatted(ratios[0], ratios[ratios.length / 2], ratios[ratios.length - 1]);
        }

        @Override
        public void close() throws IOException {
            if (limit.isPresent()) {
                limit.get().close();
            }
            child.close();
            channel.close();
            plane.close();
            lanes.close();
        }
    }
}
