// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.vllm;

import io.kvferry.backend.disk.kv.KvKeys;
import io.kvferry.backend.disk.store.BlockResult;
import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.KvCacheGroup;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/// Copies the KV of prompts between vLLM's ExampleConnector folders and the block store of a
/// `DiskConnector` with one rank and one group: what `import` and `export` of the command line
/// call.
///
/// Threading: one thread at a time; blocks on the file system.
public final class ExampleExchange {
    private final ExampleFolder folder;
    private final BlockStore store;
    private final KvCacheGroup group;

    /// @param store opened as the connector does, see
    ///   [io.kvferry.backend.disk.kv.DiskOptions#workerStore]; stays the caller's
    public ExampleExchange(ExampleFolder folder, BlockStore store, KvCacheGroup group) {
        this.folder = folder;
        this.store = store;
        this.group = group;
    }

    /// From a folder into the store.
    ///
    /// @param hashes block hashes of the prompt, at least as many as it has whole blocks before its
    ///   last token
    /// @return blocks that were not in the store before
    /// @throws KvFerryException [ErrorCode#MISS] when there is no such folder, and whatever reading
    ///   it or saving throws
    public int importPrompt(
            int[] tokens,
            List<String> multimodalHashes,
            List<BlockHash> hashes,
            Deadline deadline) {
        int kept = ExampleFolder.align(tokens.length, group.blockTokens());
        int count = kept / group.blockTokens();
        try (Arena arena = Arena.ofShared()) {
            List<List<MemorySegment>> blocks = blocks(arena, count);
            folder.read(ExampleFolder.digest(tokens, kept, multimodalHashes), kept, 0, blocks);
            int stored = 0;
            for (int i = 0; i < count; i++) {
                stored +=
                        move(true, hashes.get(i), blocks.get(i), deadline)
                                        == BlockResult.Done.STORED
                                ? 1
                                : 0;
            }
            return stored;
        }
    }

    /// From the store into a folder that vLLM reads.
    ///
    /// @return name of the folder
    /// @throws KvFerryException [ErrorCode#MISS] when a block is not in the store, and whatever
    ///   loading or writing throws
    public String exportPrompt(
            int[] tokens,
            List<String> multimodalHashes,
            List<BlockHash> hashes,
            Deadline deadline) {
        int kept = ExampleFolder.align(tokens.length, group.blockTokens());
        String digest = ExampleFolder.digest(tokens, kept, multimodalHashes);
        try (Arena arena = Arena.ofShared()) {
            List<List<MemorySegment>> blocks = blocks(arena, kept / group.blockTokens());
            for (int i = 0; i < blocks.size(); i++) {
                move(false, hashes.get(i), blocks.get(i), deadline);
            }
            folder.write(digest, kept, blocks);
            return digest;
        }
    }

    private BlockResult move(
            boolean save, BlockHash hash, List<MemorySegment> block, Deadline deadline) {
        var done = new CompletableFuture<BlockResult>();
        var key = KvKeys.of(hash, group.index(), 0);
        boolean accepted =
                save
                        ? store.save(key, block, deadline, (_, result) -> done.complete(result), 0)
                        : store.load(key, block, deadline, (_, result) -> done.complete(result), 0);
        if (!accepted) {
            throw new KvFerryException(ErrorCode.BACKPRESSURE, "the block store is busy or closed");
        }
        BlockResult result = done.join(); // the store ends every request by its deadline
        if (result instanceof BlockResult.Failed(Failure failure)) {
            throw failure.toException();
        }
        return result;
    }

    private List<List<MemorySegment>> blocks(Arena arena, int count) {
        var blocks = new ArrayList<List<MemorySegment>>();
        for (int i = 0; i < count; i++) {
            var layers = new ArrayList<MemorySegment>();
            for (int layer = 0; layer < group.layers().size(); layer++) {
                layers.add(arena.allocate(group.blockBytes(), 64));
            }
            blocks.add(layers);
        }
        return blocks;
    }
}
