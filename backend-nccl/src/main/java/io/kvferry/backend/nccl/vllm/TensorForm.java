// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvRegion;

import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/// How the blocks of a layer of this rank look as the tensor that vLLM's connector extracts and
/// injects:
///
/// ```
/// FLASH_ATTN    [2, blocks, tokens, heads, dim]   the cache of vLLM's FlashAttention
/// FLASHINFER    [blocks, 2, tokens, heads, dim]   the cache of vLLM's FlashInfer and Triton
/// latent (MLA)  [blocks, tokens, width]           whatever the option says
/// ```
///
/// The first two cannot be told apart by a tensor of two blocks, so the shape is configured.
///
/// Threading: immutable.
public final class TensorForm {
    /// What vLLM's wrapper of NCCL knows.
    private static final Set<String> DTYPES =
            Set.of("int8", "uint8", "int32", "int64", "float16", "float32", "float64", "bfloat16");

    /// Where K and V are.
    public enum Shape {
        FLASH_ATTN,
        FLASHINFER
    }

    private final List<KvRegion> regions;
    private final Map<String, Integer> positions = new HashMap<>();
    private final Shape shape;
    private final boolean latent;
    private final boolean headMajor;
    private final String dtype;
    private final int tokens;
    private final int heads;
    private final long vectorBytes;
    private final int width;
    private final long blockBytes;

    /// @throws KvFerryException [ErrorCode#UNSUPPORTED] for a cache that vLLM's connector has no
    ///   tensor for: several groups, opaque state, another element type
    public TensorForm(KvCacheSpec cache, List<KvRegion> all, Shape shape) {
        this.shape = shape;
        this.regions = all.stream().sorted(Comparator.comparingInt(KvRegion::layerIndex)).toList();
        if (cache.groups().size() != 1) {
            throw unsupported(cache.groups().size() + " KV cache groups; it knows one");
        }
        var group = cache.groups().getFirst();
        this.tokens = group.blockTokens();
        this.blockBytes = group.blockBytes();
        this.dtype = group.format().dtype().label();
        int element = group.format().dtype().bytes();
        switch (group.format()) {
            case KvFormat.Heads format -> {
                latent = false;
                headMajor = format.layout().isHeadMajor();
                width = format.headDim();
                vectorBytes = (long) width * element;
                heads = (int) (blockBytes / (2 * tokens * vectorBytes));
            }
            case KvFormat.Vectors format -> {
                latent = true;
                headMajor = false;
                width = format.width();
                vectorBytes = (long) width * element;
                heads = 1;
            }
            case KvFormat.Opaque _ -> throw unsupported("state that only its runner can read");
        }
        if (!DTYPES.contains(dtype)) {
            throw unsupported("elements of type " + dtype);
        }
        if ((latent ? 1L : 2L * heads) * tokens * vectorBytes != blockBytes) {
            throw unsupported("blocks of " + blockBytes + " bytes that hold more than K and V");
        }
        for (int i = 0; i < regions.size(); i++) {
            if (regions.get(i).blockBytes() != blockBytes) {
                throw unsupported("layers of unlike blocks");
            }
            var _ = regions.get(i).segment(); // throws for device memory
            positions.put(regions.get(i).layer(), i);
        }
    }

    private static KvFerryException unsupported(String what) {
        return new KvFerryException(
                ErrorCode.UNSUPPORTED, "protocol 0, vLLM's P2pNccl, has no tensors for " + what);
    }

    public int layers() {
        return regions.size();
    }

    /// Name of a layer, as the model and the tensor id call it.
    public String layer(int position) {
        return regions.get(position).layer();
    }

    /// Position of a layer of that name, -1 for none.
    public int position(String layer) {
        return positions.getOrDefault(layer, -1);
    }

    /// Layers up to this one.
    public int layersThrough(int layerIndex) {
        int layers = 0;
        while (layers < regions.size() && regions.get(layers).layerIndex() <= layerIndex) {
            layers++;
        }
        return layers;
    }

    /// Without `torch.`
    public String dtype() {
        return dtype;
    }

    public long bytes(int blocks) {
        return Math.multiplyExact(blockBytes, (long) blocks);
    }

    /// Blocks that a prompt takes.
    public int blocksOf(int promptTokens) {
        return Math.ceilDiv(promptTokens, tokens);
    }

    public long[] shape(int blocks) {
        if (latent) {
            return new long[] {blocks, tokens, width};
        }
        return shape == Shape.FLASH_ATTN
                ? new long[] {2, blocks, tokens, heads, width}
                : new long[] {blocks, 2, tokens, heads, width};
    }

    /// The number of blocks of a tensor that a peer announces.
    ///
    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] when it does not match this cache
    public int blocks(long[] announced, String type) {
        if (!type.equals(dtype)) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE, "the peer's KV is " + cut(type) + ", here " + dtype);
        }
        int at = latent || shape == Shape.FLASHINFER ? 0 : 1;
        long blocks = announced.length > at ? announced[at] : -1;
        boolean possible = blocks >= 1 && blocks <= regions.getFirst().blocks();
        if (!possible || !Arrays.equals(announced, shape((int) blocks))) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "the peer's tensor is "
                            + cut(Arrays.toString(announced))
                            + ", here it is "
                            + Arrays.toString(shape(1))
                            + " for a block, and "
                            + regions.getFirst().blocks()
                            + " blocks at most");
        }
        return (int) blocks;
    }

    private static String cut(String text) {
        return text.length() > 100 ? text.substring(0, 100) : text;
    }

    /// Copies blocks of a layer into a tensor of just these.
    public void gather(int position, int[] ids, MemorySegment tensor) {
        copy(position, ids, 0, ids.length, tensor, true);
    }

    /// Copies blocks out of a tensor of `all` blocks, those from `first` on, into these of a layer.
    public void scatter(int position, int[] ids, int first, int all, MemorySegment tensor) {
        copy(position, ids, first, all, tensor, false);
    }

    private void copy(
            int position, int[] ids, int first, int all, MemorySegment tensor, boolean gathers) {
        var region = regions.get(position);
        var cache = region.segment();
        for (int b = 0; b < ids.length; b++) {
            long block = region.offset(ids[b]);
            if (latent) {
                move(cache, block, tensor, (first + b) * blockBytes, blockBytes, gathers);
                continue;
            }
            for (int kv = 0; kv < 2; kv++) {
                long outer =
                        shape == Shape.FLASH_ATTN
                                ? (long) kv * all + first + b
                                : (first + b) * 2L + kv;
                for (int n = 0; n < tokens; n++) {
                    for (int h = 0; h < heads; h++) {
                        long inner = headMajor ? (long) h * tokens + n : (long) n * heads + h;
                        move(
                                cache,
                                block + (inner * 2 + kv) * vectorBytes,
                                tensor,
                                ((outer * tokens + n) * heads + h) * vectorBytes,
                                vectorBytes,
                                gathers);
                    }
                }
            }
        }
    }

    private static void move(
            MemorySegment cache,
            long inCache,
            MemorySegment tensor,
            long inTensor,
            long bytes,
            boolean gathers) {
        if (gathers) {
            MemorySegment.copy(cache, inCache, tensor, inTensor, bytes);
        } else {
            MemorySegment.copy(tensor, inTensor, cache, inCache, bytes);
        }
    }
}
