// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.backend.mooncake.te.EngineRequest.Operation;

import java.util.ArrayList;
import java.util.List;

/// One row of the sweep.
public record Shape(Operation operation, int block, int batch, int threads) {
    /// Bytes that all threads together move in one round.
    public long bytes() {
        return (long) block * batch * threads;
    }

    /// Connections, or copying threads, that each thread's transfer is cut over: as the engine does
    /// it, one for every `share` bytes.
    public int lanes(int most, long share) {
        return Math.clamp((long) block * batch / share, 1, most);
    }

    /// The sweep in nixlbench's order, without what does not fit into `memory` bytes.
    static List<Shape> sweep(
            List<Operation> work, int[] threads, int[] blocks, int[] batches, long memory) {
        List<Shape> shapes = new ArrayList<>();
        for (Operation operation : work) {
            for (int count : threads) {
                for (int block : blocks) {
                    for (int batch : batches) {
                        var shape = new Shape(operation, block, batch, count);
                        if (shape.bytes() <= memory) {
                            shapes.add(shape);
                        }
                    }
                }
            }
        }
        return shapes;
    }
}
