// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.vllm;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.backend.disk.kv.DiskOptions;
import io.kvferry.backend.disk.kv.FileLayout;
import io.kvferry.backend.disk.kv.KvKeys;
import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.backend.disk.store.StoreListener;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.exchange.CacheExchange;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvLayout;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/// Copies the KV of prompts between folders of vLLM's ExampleConnector and the block store of a
/// `DiskConnector` with one rank and one group.
///
/// Threading: one thread at a time; blocks on the file system.
public final class ExampleExchange implements CacheExchange {
    private final ExampleFolder folder;
    private final BlockStore store;
    private final KvCacheGroup group;
    private final FileLayout layout;
    private final KvLayout order;

    private ExampleExchange(
            ExampleFolder folder,
            BlockStore store,
            KvCacheGroup group,
            FileLayout layout,
            KvLayout order) {
        this.folder = folder;
        this.store = store;
        this.group = group;
        this.layout = layout;
        this.order = order;
    }

    /// Opens the block store of this worker, and the folder.
    ///
    /// @throws KvFerryException [ErrorCode#UNSUPPORTED] for several ranks, [ErrorCode#INCOMPATIBLE]
    ///   when they cannot hold this cache, and what opening the store throws
    public static ExampleExchange open(WorkerContext context, Path root) {
        if (context.rank().worldSize() != 1) {
            throw new KvFerryException(
                    ErrorCode.UNSUPPORTED,
                    "vLLM's ExampleConnector folders hold the cache of one rank, this engine has "
                            + context.rank().worldSize());
        }
        if (!context.engine().cache().has(KvLayout.LBNHC)) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "vLLM's ExampleConnector folders need cache layout LBNHC, this engine has "
                            + context.engine().cache().groups().getFirst().format());
        }
        var groups = context.engine().cache().groups();
        if (groups.size() != 1 || groups.getFirst().kind() != KvCacheGroup.Kind.FULL_ATTENTION) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "vLLM's ExampleConnector folders hold one group of full attention, this engine has "
                            + groups);
        }
        var folder =
                new ExampleFolder(root, context.engine().cache(), context.engine().namespace());
        var layout = FileLayout.of(context.options(), context.engine().cache(), 1); // may refuse
        BlockStore store =
                BlockStore.open(
                        DiskOptions.workerStore(
                                context.options(),
                                context.engine().namespace(),
                                context.config().role()),
                        StoreListener.NONE);
        return new ExampleExchange(
                folder, store, groups.getFirst(), layout, context.engine().namespace().layout());
    }

    @Override
    public Copied importPrompt(CacheExchange.Prompt prompt, Deadline deadline) {
        int kept = ExampleFolder.align(prompt.tokens().length, group.blockTokens());
        if (kept == 0) {
            return new Copied("", 0, 0);
        }
        String digest = ExampleFolder.digest(prompt.tokens(), kept, prompt.itemHashes());
        int count = kept / group.blockTokens();
        try (Arena arena = Arena.ofShared()) {
            List<List<MemorySegment>> blocks = blocks(arena, count);
            folder.read(digest, kept, 0, blocks);
            int stored = 0;
            for (int i = 0; i < count; i++) {
                var key = KvKeys.of(prompt.blockHashes().get(i), group.index(), 0, i);
                if (require(move(true, key, blocks.get(i), deadline)) == BlockResult.Done.STORED) {
                    stored++;
                }
            }
            return new Copied(digest, count, stored);
        }
    }

    @Override
    public Copied exportPrompt(CacheExchange.Prompt prompt, Deadline deadline) {
        int kept = ExampleFolder.align(prompt.tokens().length, group.blockTokens());
        if (kept == 0) {
            return new Copied("", 0, 0);
        }
        String digest = ExampleFolder.digest(prompt.tokens(), kept, prompt.itemHashes());
        int count = kept / group.blockTokens();
        try (Arena arena = Arena.ofShared()) {
            List<BlockHash> hashes = prompt.blockHashes();
            List<List<MemorySegment>> blocks = blocks(arena, hashes.size());
            for (int start = 0; start < count; start += layout.run()) {
                int end = start + layout.run();
                if (end > hashes.size() || !loadRun(hashes, blocks, start, deadline)) {
                    for (int i = start; i < Math.min(end, count); i++) {
                        var key = KvKeys.of(hashes.get(i), group.index(), 0, i);
                        require(move(false, key, blocks.get(i), deadline));
                    }
                }
            }
            boolean written = folder.write(digest, kept, blocks.subList(0, count));
            return new Copied(digest, count, written ? count : 0);
        }
    }

    /// Loads a run from one file; false when its blocks are in none that can be used.
    ///
    /// @throws KvFerryException when it cannot be read now
    private boolean loadRun(
            List<BlockHash> hashes,
            List<List<MemorySegment>> blocks,
            int start,
            Deadline deadline) {
        if (layout.run() == 1) {
            return false;
        }
        int end = start + layout.run();
        var key = KvKeys.ofRun(hashes.get(end - 1), group.index(), 0, start, layout.run());
        var segments = FileLayout.inOrder(blocks.subList(start, end), order);
        var result = move(false, key, segments, deadline);
        return !result.failedWith(ErrorCode.MISS)
                && !result.failedWith(ErrorCode.CORRUPT)
                && require(result) == BlockResult.Done.LOADED;
    }

    /// The memory of a request that timed out may be freed, see
    /// [io.kvferry.backend.disk.store.BlockCallback].
    private BlockResult move(
            boolean save, BlockKey key, List<MemorySegment> block, Deadline deadline) {
        var done = new CompletableFuture<BlockResult>();
        boolean accepted =
                save
                        ? store.save(key, block, deadline, (_, result) -> done.complete(result), 0)
                        : store.load(key, block, deadline, (_, result) -> done.complete(result), 0);
        if (!accepted) {
            throw new KvFerryException(ErrorCode.BACKPRESSURE, "the block store is busy or closed");
        }
        return done.join(); // the store ends every request by its deadline
    }

    private static BlockResult require(BlockResult result) {
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

    @Override
    public void close() {
        store.close();
    }
}
