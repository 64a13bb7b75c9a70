// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.testkit;

import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.SOON;

import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapClient;
import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapServer;
import io.kvferry.backend.mooncake.p2p.bootstrap.WorkerRegistration;
import io.kvferry.backend.mooncake.p2p.copy.TpPairing;
import io.kvferry.backend.mooncake.p2p.wire.Generation;
import io.kvferry.backend.mooncake.p2p.wire.RequestBlocks;
import io.kvferry.backend.mooncake.p2p.wire.WireRegions;
import io.kvferry.backend.mooncake.p2p.wire.XferDecoder;
import io.kvferry.backend.mooncake.p2p.wire.XferEncoder;
import io.kvferry.backend.mooncake.p2p.wire.XferMetadata;
import io.kvferry.backend.mooncake.p2p.wire.XferResponse;
import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.EngineOutcome;
import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.RegisteredMemory;
import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.IntStream;
import java.util.stream.LongStream;

/// One rank of a vLLM of any generation, as either half of a hand-over: it adds nothing of
/// kvferry's to messages or on the data port, and has one region per layer with blocks side by
/// side.
public final class Stranger implements AutoCloseable {
    public static final long LAYOUT_ID = 0x1234567;

    public final Generation generation;
    private final int layers;
    private final int blocks;
    private final int blockBytes;
    private final TransferEngine engine =
            JavaTransferEngine.start(
                    EngineConfig.from(Map.of("host", "127.0.0.1", "extension", "false")));
    private final RegisteredMemory memory;
    private final SideChannel channel = new SideChannel("stranger");
    private final List<BootstrapServer> servers = new ArrayList<>();
    private final Heard heard = new Heard();

    /// The first block that is written to decoders.
    public volatile int source;

    public int tpSize = 1;
    public int tpRank;

    /// KV heads of all ranks; 0 where decoders have the same share of them as this rank.
    public int heads;

    /// For how long it goes on writing after it has answered that it failed; null: it does not
    /// fail.
    public volatile @Nullable Duration goesOn;

    private final Set<CompletableFuture<?>> going = ConcurrentHashMap.newKeySet();

    public Stranger(Generation generation, int layers, int blocks, int blockBytes) {
        this.generation = generation;
        this.layers = layers;
        this.blocks = blocks;
        this.blockBytes = blockBytes;
        this.memory = engine.allocate((long) layers * blocks * blockBytes);
    }

    private long address(int layer, int block) {
        return memory.address() + ((long) layer * blocks + block) * blockBytes;
    }

    public MemorySegment block(int layer, int block) {
        return memory.memory().asSlice(address(layer, block) - memory.address(), blockBytes);
    }

    /// The regions as this generation sees them.
    public WireRegions regions() {
        var base = IntStream.range(0, layers).mapToLong(layer -> address(layer, 0)).toArray();
        var lengths = new long[layers];
        Arrays.fill(lengths, blockBytes);
        return new WireRegions(
                base,
                lengths,
                lengths,
                IntStream.range(0, layers)
                        .mapToObj(layer -> "model.layers." + layer + ".self_attn.attn")
                        .toList(),
                IntStream.range(0, layers).toArray(),
                new int[layers],
                since033() ? Collections.nCopies(layers, new int[1]) : List.of(),
                since033() ? LongStream.range(0, layers).map(_ -> -1).toArray() : new long[0]);
    }

    private boolean since033() {
        return generation == Generation.G7;
    }

    // As a decoder.

    /// Asks rank 0 of a prefiller for blocks `first` and following; none for a release.
    public XferResponse pull(TestEngine p, String transfer, int first, int count)
            throws InterruptedException {
        return pull(p, transfer, first, count, regions());
    }

    public XferResponse pull(
            TestEngine p, String transfer, int first, int count, WireRegions regions)
            throws InterruptedException {
        channel.exchange(
                sideChannel(p), request(transfer, first, count, regions), SOON, SOON, heard);
        return heard.next(SOON);
    }

    /// As [#pull], from the worker at an address.
    public XferResponse pullFrom(String address, String transfer, int first, int count)
            throws InterruptedException {
        channel.exchange(address, request(transfer, first, count), SOON, SOON, heard);
        return heard.next(SOON);
    }

    /// The request of [#pull].
    public byte[] request(String transfer, int first, int count) {
        return request(transfer, first, count, regions());
    }

    /// One message for several transfers, each into blocks of its own.
    ///
    /// @param firsts the first of `count` blocks for each transfer
    public byte[] request(Map<String, Integer> firsts, int count) {
        var wanted = new HashMap<String, RequestBlocks>();
        firsts.forEach(
                (transfer, first) -> wanted.put("d-" + transfer, blocks(transfer, first, count)));
        return request(wanted, regions());
    }

    private byte[] request(String transfer, int first, int count, WireRegions regions) {
        return request(Map.of("d-" + transfer, blocks(transfer, first, count)), regions);
    }

    private static RequestBlocks blocks(String transfer, int first, int count) {
        var ids = IntStream.range(first, first + count).toArray();
        return new RequestBlocks(transfer, count == 0 ? List.of() : List.of(ids));
    }

    private byte[] request(Map<String, RequestBlocks> wanted, WireRegions regions) {
        return XferEncoder.request(
                new XferMetadata(
                        generation,
                        "127.0.0.1",
                        engine.info().rpcPort(),
                        tpSize,
                        tpRank,
                        wanted,
                        regions,
                        1,
                        since033() ? LAYOUT_ID : 0,
                        Optional.empty()));
    }

    /// The side channel of a prefiller's only worker.
    public static String sideChannel(TestEngine p) throws InterruptedException {
        try (var client = new BootstrapClient(SOON)) {
            var engines = client.query(BootstrapClient.baseAddress(p.bootstrap)).values();
            return engines.iterator().next().workers().values().iterator().next();
        }
    }

    // As a prefiller.

    /// Registers as `tp` x `pp` ranks of one engine, named "stranger", which are all this one.
    ///
    /// @return address of its bootstrap service
    public String serve(int tp, int pp) throws InterruptedException {
        var base = bootstrap();
        for (int rank = 0; rank < tp * pp; rank++) {
            register(base, rank % tp, rank / tp, channel.listen("127.0.0.1", this::serve));
        }
        return base;
    }

    /// Serves as its own tensor-parallel rank of "stranger".
    ///
    /// @param base of the bootstrap service where the ranks are listed
    public void serveItsRank(String base) throws InterruptedException {
        register(base, tpRank, 0, channel.listen("127.0.0.1", this::serve));
    }

    /// Starts a bootstrap service.
    public String bootstrap() {
        var bootstrap = BootstrapServer.start("127.0.0.1", 0);
        servers.add(bootstrap);
        return "http://127.0.0.1:" + bootstrap.port();
    }

    private static void register(String base, int tp, int pp, String address)
            throws InterruptedException {
        try (var client = new BootstrapClient(SOON)) {
            client.register(
                    URI.create(base),
                    new WorkerRegistration("stranger", 0, tp, pp, address, Optional.empty()));
        }
    }

    /// As [TestEngine#compute], of its own heads.
    public void compute(int seed, int first, int count) {
        int headBytes = headBytes();
        int firstHead = TpPairing.heads(tpRank, tpSize, heads).first();
        for (int layer = 0; layer < layers; layer++) {
            for (int i = 0; i < count; i++) {
                var block = block(layer, first + i);
                for (int b = 0; b < blockBytes; b++) {
                    int head = firstHead + b / headBytes;
                    int mix = seed * 31 + layer * 7 + i * 13 + head * 101 + b % headBytes * 3;
                    block.set(ValueLayout.JAVA_BYTE, b, (byte) (mix | 1));
                }
            }
        }
    }

    private int headBytes() {
        return blockBytes / TpPairing.heads(tpRank, tpSize, heads).count();
    }

    /// Fills each layer of blocks `first` and following with bytes that follow from `seed`.
    public void fill(int seed, int first, int count) {
        for (int layer = 0; layer < layers; layer++) {
            for (int i = 0; i < count; i++) {
                var block = block(layer, first + i);
                for (int b = 0; b < blockBytes; b++) {
                    block.set(ValueLayout.JAVA_BYTE, b, (byte) (seed + 31 * layer + 7 * i + b | 1));
                }
            }
        }
    }

    /// Writes its blocks from the source on into the last ones that are asked for, K and V apart,
    /// as vLLM did.
    private void serve(SideChannel.Asker asker, byte[] bytes) {
        var message = XferDecoder.request(bytes);
        var request = message.reqBlocks().entrySet().iterator().next();
        var regions = message.regions();
        boolean understood =
                message.generation() == generation
                        && message.extension().isEmpty()
                        && regions.size() == layers
                        && regions.problem(generation).isEmpty();
        if (!understood) {
            asker.answer(
                    XferEncoder.response(
                            XferResponse.error("not what I speak: " + message.generation())));
            return;
        }
        var ranges = new Ranges(16);
        if (!request.getValue().releaseOnly()) {
            int[] wanted = request.getValue().groups().getFirst();
            for (int layer = 0; layer < layers; layer++) {
                for (int i = 0; i < wanted.length; i++) {
                    addBlock(ranges, message, layer, source + i, wanted[i]);
                }
            }
        }
        var id = List.of(request.getKey());
        var late = goesOn;
        if (late != null) {
            var until = Deadline.in(late);
            var answered = new CompletableFuture<Void>();
            going.add(
                    answered.thenRunAsync(
                            () -> writeOneByOne(message.segmentName(), ranges, until)));
            answer(asker, List.of(), id, "the batch write returned -1");
            answered.complete(null);
            return;
        }
        var transfer =
                engine.submit(
                        EngineRequest.write(message.segmentName(), ranges, Deadline.in(SOON)));
        going.add(transfer.quiesced().toCompletableFuture());
        transfer.outcome()
                .thenAccept(outcome -> {
                    boolean done = outcome instanceof EngineOutcome.Completed;
                    answer(
                            asker,
                            done ? id : List.of(),
                            done ? List.of() : id,
                            done ? "" : outcome.toString());
                });
    }

    private static void answer(
            SideChannel.Asker asker, List<String> ok, List<String> failed, String why) {
        asker.answer(
                XferEncoder.response(
                        new XferResponse(XferResponse.Status.FINISH, ok, failed, why, 0)));
    }

    /// K and V apart where decoders have as many heads; else the heads that the two have in common.
    private void addBlock(Ranges ranges, XferMetadata message, int layer, int from, int to) {
        var regions = message.regions();
        long stride = generation == Generation.G2 ? blockBytes : regions.blockLengths()[layer];
        long source = address(layer, from);
        long target = regions.baseAddresses()[layer] + to * stride;
        if (heads == 0) {
            int half = blockBytes / 2;
            ranges.add(source, target, half);
            ranges.add(source + half, target + half, half);
            return;
        }
        var own = TpPairing.heads(tpRank, tpSize, heads);
        var theirs = TpPairing.heads(message.remoteTpRank(), message.remoteTpSize(), heads);
        int headBytes = headBytes();
        for (int head = own.first(); head < own.first() + own.count(); head++) {
            if (head >= theirs.first() && head < theirs.first() + theirs.count()) {
                ranges.add(
                        source + (long) (head - own.first()) * headBytes,
                        target + (long) (head - theirs.first()) * headBytes,
                        headBytes);
            }
        }
    }

    private void writeOneByOne(String segmentName, Ranges ranges, Deadline until) {
        for (int i = 0; i < ranges.size() && !until.passed(); i++) {
            var one = Ranges.of(ranges.localAddress(i), ranges.remoteAddress(i), ranges.bytes(i));
            engine.transfer(EngineRequest.write(segmentName, one, until));
        }
    }

    /// Waits for all writes so far, also those that go on after a failure.
    public void awaitWrites() {
        for (var write : List.copyOf(going)) {
            write.join();
            going.remove(write);
        }
    }

    @Override
    public void close() {
        channel.close();
        servers.forEach(BootstrapServer::close);
        engine.close();
    }
}
