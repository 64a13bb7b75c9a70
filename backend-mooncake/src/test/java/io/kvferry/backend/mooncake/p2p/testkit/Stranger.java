// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.testkit;

import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.SOON;

import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapClient;
import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapServer;
import io.kvferry.backend.mooncake.p2p.bootstrap.WorkerRegistration;
import io.kvferry.backend.mooncake.p2p.wire.Generation;
import io.kvferry.backend.mooncake.p2p.wire.RequestBlocks;
import io.kvferry.backend.mooncake.p2p.wire.WireRegions;
import io.kvferry.backend.mooncake.p2p.wire.XferDecoder;
import io.kvferry.backend.mooncake.p2p.wire.XferEncoder;
import io.kvferry.backend.mooncake.p2p.wire.XferMetadata;
import io.kvferry.backend.mooncake.p2p.wire.XferResponse;
import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.RegisteredMemory;
import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.backend.mooncake.te.TransferOutcome;
import io.kvferry.backend.mooncake.te.TransferRequest;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.zmtp.SideChannel;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
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

    private byte[] request(String transfer, int first, int count, WireRegions regions) {
        var ids = IntStream.range(first, first + count).toArray();
        return XferEncoder.request(
                new XferMetadata(
                        generation,
                        "127.0.0.1",
                        engine.info().rpcPort(),
                        tpSize,
                        tpRank,
                        Map.of(
                                "d-" + transfer,
                                new RequestBlocks(transfer, count == 0 ? List.of() : List.of(ids))),
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
        var bootstrap = BootstrapServer.start("127.0.0.1", 0);
        servers.add(bootstrap);
        var base = "http://127.0.0.1:" + bootstrap.port();
        var address = channel.listen("127.0.0.1", this::serve);
        try (var client = new BootstrapClient(SOON)) {
            for (int rank = 0; rank < tp * pp; rank++) {
                client.register(
                        URI.create(base),
                        new WorkerRegistration(
                                "stranger", 0, rank % tp, rank / tp, address, Optional.empty()));
            }
        }
        return base;
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
        int first = source;
        int half = blockBytes / 2;
        for (int layer = 0; layer < layers && !request.getValue().releaseOnly(); layer++) {
            long stride = generation == Generation.G2 ? blockBytes : regions.blockLengths()[layer];
            int[] wanted = request.getValue().groups().getFirst();
            for (int i = 0; i < wanted.length; i++) {
                long to = regions.baseAddresses()[layer] + wanted[i] * stride;
                long from = address(layer, first + i);
                ranges.add(from, to, half);
                ranges.add(from + half, to + half, half);
            }
        }
        engine.submit(TransferRequest.write(message.segmentName(), ranges, Deadline.in(SOON)))
                .outcome()
                .thenAccept(outcome -> {
                    var id = List.of(request.getKey());
                    boolean done = outcome instanceof TransferOutcome.Completed;
                    asker.answer(
                            XferEncoder.response(
                                    new XferResponse(
                                            XferResponse.Status.FINISH,
                                            done ? id : List.of(),
                                            done ? List.of() : id,
                                            done ? "" : outcome.toString(),
                                            0)));
                });
    }

    @Override
    public void close() {
        channel.close();
        servers.forEach(BootstrapServer::close);
        engine.close();
    }
}
