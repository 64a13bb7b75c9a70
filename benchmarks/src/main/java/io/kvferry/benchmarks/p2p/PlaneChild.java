// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.p2p;

import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.plane.HostPlane;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.backend.nccl.wire.VllmMessage;
import io.kvferry.benchmarks.ChildJvm;
import io.kvferry.benchmarks.ProcessCost;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.net.DataSockets;
import io.kvferry.toolkit.zmtp.SideChannel;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/// The receiver, in a JVM of its own. It obeys lines on its standard input, `window LANE BLOCK
/// LAYERS BLOCKS`, `await LANE`, `ways`, `cpu`, and takes offers and puts on a side channel.
final class PlaneChild {
    static final Duration LIMIT = Duration.ofMinutes(2);
    private static final String HOST = "127.0.0.1";

    private final Lanes lanes;
    private final HostPlane plane;
    private final SideChannel channel = new SideChannel("receiver");
    private final Map<Integer, CompletableFuture<String>> ends = new ConcurrentHashMap<>();

    /// Where the tensors of single puts come from.
    private final CompletableFuture<SocketChannel> puts = new CompletableFuture<>();

    private PlaneChild(
            int lanes, long laneBytes, HostPlane.Ways ways, HostPlane.Checksum checksum) {
        this.plane = HostPlane.open("receiver", HOST, HOST, ways, checksum);
        this.lanes = new Lanes(lanes, laneBytes);
    }

    /// @param args number of lanes, bytes of each, how the bytes may go, when they are summed
    public static void main(String[] args) throws Exception {
        var child =
                new PlaneChild(
                        Integer.parseInt(args[0]),
                        Long.parseLong(args[1]),
                        HostPlane.Ways.valueOf(args[2]),
                        HostPlane.Checksum.valueOf(args[3]));
        try (var sink =
                ServerSocketChannel.open()
                        .bind(new InetSocketAddress(InetAddress.getByName(HOST), 0))) {
            DataSockets.expectConnections(sink);
            Thread.ofPlatform().daemon().start(() -> child.accept(sink));
            var control = child.channel.listen(HOST, child::onMessage);
            ChildJvm.ready();
            var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (var line = in.readLine(); line != null; line = in.readLine()) {
                var words = line.split(" ");
                System.out.println(
                        switch (words[0]) {
                            case "ports" -> sink.socket().getLocalPort() + " " + control;
                            case "window" -> child.window(words);
                            case "await" -> child.await(Integer.parseInt(words[1]));
                            case "ways" -> new TreeMap<>(child.plane.takeReceived()).toString();
                            default -> String.valueOf(ProcessCost.now().cpuNanos());
                        });
            }
        } finally {
            child.channel.close();
            child.plane.close();
            child.lanes.close();
        }
    }

    /// When the window of a lane was full, or why it is not.
    private String await(int lane) throws Exception {
        var end = ends.remove(lane);
        return end == null ? "no window" : end.get(LIMIT.toSeconds(), TimeUnit.SECONDS);
    }

    private String window(String[] words) {
        int lane = Integer.parseInt(words[1]);
        var grant =
                open(
                        lane,
                        Long.parseLong(words[2]),
                        Integer.parseInt(words[3]),
                        Integer.parseInt(words[4]));
        return grant.high() + " " + grant.low() + " " + plane.address();
    }

    private Grant open(int lane, long blockBytes, int layers, int blocks) {
        var grant = Grant.draw();
        var end = new CompletableFuture<String>();
        ends.put(lane, end);
        var _ =
                plane.receive(
                        grant,
                        lanes.placement(lane, blockBytes, layers, blocks),
                        Deadline.in(LIMIT),
                        outcome ->
                                end.complete(
                                        outcome instanceof DataPlane.Outcome.Done
                                                ? String.valueOf(System.nanoTime())
                                                : outcome.toString()));
        return grant;
    }

    /// An offer is granted; a put of protocol 0 is answered, and its tensor read before the next.
    private void onMessage(SideChannel.Asker asker, byte[] message) {
        if (!PeerMessage.isFramed(message)) {
            if (VllmMessage.decode(message) instanceof VllmMessage.Put put) {
                asker.answer(VllmMessage.PUT_GO);
                try {
                    lanes.read(puts.join(), 0, put.shape()[0]);
                } catch (IOException e) {
                    throw new UncheckedIOException(e);
                }
            }
        } else if (PeerMessage.decode(message) instanceof PeerMessage.Offer(var transfer)) {
            int[] counts = transfer.counts();
            long block = counts[2];
            var grant = open(0, block, counts[0], counts[1]);
            asker.answer(
                    new PeerMessage.Granted(
                                    1,
                                    grant,
                                    plane.address(),
                                    counts,
                                    block * counts[0] * counts[1])
                            .encode());
        }
    }

    /// Connections say `LANE BYTES`, and are answered with a byte when all has come; one with no
    /// bytes is that of the puts.
    private void accept(ServerSocketChannel sink) {
        try {
            while (true) {
                var connection = sink.accept();
                connection.setOption(StandardSocketOptions.TCP_NODELAY, true);
                Thread.ofVirtual().start(() -> take(connection));
            }
        } catch (ClosedChannelException e) {
            // the run is over
        } catch (IOException e) {
            System.err.println("# the sink has ended: " + e);
        }
    }

    private void take(SocketChannel connection) {
        try {
            var head = ByteBuffer.allocateDirect(12);
            while (head.hasRemaining()) {
                if (connection.read(head) < 0) {
                    return;
                }
            }
            head.flip();
            int lane = head.getInt();
            long bytes = head.getLong();
            if (bytes == 0) {
                puts.complete(connection);
                return;
            }
            lanes.read(connection, lane, bytes);
            var _ = connection.write(ByteBuffer.allocateDirect(1));
            connection.close();
        } catch (IOException e) {
            System.err.println("# a plain stream has ended: " + e);
        }
    }
}
