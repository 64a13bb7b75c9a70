// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.p2p;

import io.kvferry.backend.nccl.plane.Placement;
import io.kvferry.toolkit.memory.HostPages;

import java.io.EOFException;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.stream.IntStream;

/// Memory of one process, made as an engine makes its cache, a piece for each stream.
///
/// Threading: immutable; each lane is used by one thread at a time.
final class Lanes implements AutoCloseable {
    private static final int CALL_BYTES = 1 << 20;

    private final Arena arena = Arena.ofShared();
    private final MemorySegment all;
    private final long laneBytes;

    Lanes(int lanes, long laneBytes) {
        this.laneBytes = laneBytes;
        all = HostPages.allocate(lanes * laneBytes, arena);
        all.fill((byte) 7);
    }

    /// Blocks one behind the other, in as many layers; beginning in a lane, and as long as needed.
    Placement placement(int lane, long blockBytes, int layers, int blocksPerLayer) {
        var parts = new ArrayList<Placement.Part>();
        var blocks = IntStream.range(0, blocksPerLayer).toArray();
        for (int layer = 0; layer < layers; layer++) {
            var segment =
                    all.asSlice(
                            lane * laneBytes + layer * blockBytes * blocksPerLayer,
                            blockBytes * blocksPerLayer);
            parts.add(new Placement.Part(layer, segment, blockBytes, blockBytes, blocks));
        }
        return new Placement(parts);
    }

    void write(SocketChannel to, int lane, long bytes) throws IOException {
        for (long at = 0; at < bytes; at += CALL_BYTES) {
            var view = view(lane, at, bytes);
            while (view.hasRemaining()) {
                var _ = to.write(view);
            }
        }
    }

    void read(SocketChannel from, int lane, long bytes) throws IOException {
        for (long at = 0; at < bytes; at += CALL_BYTES) {
            var view = view(lane, at, bytes);
            while (view.hasRemaining()) {
                if (from.read(view) < 0) {
                    throw new EOFException("the other end has closed the connection");
                }
            }
        }
    }

    private ByteBuffer view(int lane, long at, long bytes) {
        return all.asSlice(lane * laneBytes + at, Math.min(CALL_BYTES, bytes - at)).asByteBuffer();
    }

    @Override
    public void close() {
        arena.close();
    }
}
