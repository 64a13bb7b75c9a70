// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.replay;

import java.util.Map;

/// What a block of a trace is for the engine and for DiskConnector.
enum BlockCut {
    /// Two small blocks that share a file: the store evicts what the exact LRU evicts.
    FILE_PER_BLOCK(2, 16, 1, 2, 8192, 6),
    /// The 512 tokens that it is in Mooncake's traces, in blocks of 16, and files as DiskConnector
    /// makes them by default: 64 blocks of 8 KiB each, two blocks of the trace, and what does not
    /// fill such a file in a file for each block of the engine. A header takes 4 KiB of each, a
    /// third of the file of a single block, of which larger blocks lose less.
    DEFAULT_RUNS(32, 64, 2, 0, (64 * 8192 + 4096) / 2, 20);

    /// Tokens of a block of the engine.
    static final int TOKENS = 16;

    private final int blocks;
    private final long headDim;
    private final long layers;
    private final int runBlocks;
    private final long bytes;
    private final int millis;

    BlockCut(int blocks, long headDim, long layers, int runBlocks, long bytes, int millis) {
        this.blocks = blocks;
        this.headDim = headDim;
        this.layers = layers;
        this.runBlocks = runBlocks;
        this.bytes = bytes;
        this.millis = millis;
    }

    /// Blocks of the engine for one of the trace.
    int blocks() {
        return blocks;
    }

    /// Blocks of the engine in a file, 0 for the connector's default.
    int runBlocks() {
        return runBlocks;
    }

    /// What a block of the trace takes on disk where it is in a full file.
    long bytes() {
        return bytes;
    }

    /// About what a request takes in a replay by one engine.
    int millis() {
        return millis;
    }

    /// One head of elements of 2 bytes, K and V.
    Map<String, Object> model() {
        return Map.of("layers", layers, "kv_heads", 1L, "head_dim", headDim, "dtype", "float16");
    }
}
