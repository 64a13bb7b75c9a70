// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.vllm;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.toolkit.files.FileTrouble;
import io.kvferry.toolkit.safetensors.SafetensorsFile;
import io.kvferry.toolkit.safetensors.SafetensorsWriter;
import io.kvferry.toolkit.safetensors.TensorInfo;
import io.kvferry.toolkit.safetensors.TensorType;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/// The KV of whole prompts, one folder per prompt, one safetensors file per layer with a tensor
/// `kv_cache` of shape `[tokens, heads, 2 * headDim]` (of each head the key, then the value).
///
/// That is what vLLM's connector takes out of its view `[block, head, token, content]` of a layer,
/// and the blocks of layout LBNHC, which the connector demands, one behind the other. Releases of
/// vLLM without that view wrote `[2, tokens, width]`; such folders are refused by their shape.
///
/// vLLM's folders name neither model nor tenant. Those written here carry the namespace in their
/// metadata, and one of another namespace is refused; one without, as vLLM writes, is accepted if
/// shape and type fit.
///
/// Threading: immutable; any thread. Every method blocks on the file system.
public final class ExampleFolder {
    private static final String TENSOR = "kv_cache";
    private static final String NAMESPACE = "kvferry.namespace";

    private final Path root;
    private final KvCacheGroup group;
    private final DType dtype;
    private final String namespace;
    private final long contentBytes;

    /// @param cache its first group is kept
    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] when the layout cannot hold this cache
    public ExampleFolder(Path root, KvCacheSpec cache, CacheNamespace namespace) {
        this.root = root;
        this.group = cache.groups().getFirst();
        if (!(group.format() instanceof KvFormat.Heads heads)) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "the layout holds K and V of heads; the model keeps " + group.format());
        }
        this.dtype = heads.dtype();
        this.namespace = namespace.hex();
        this.contentBytes = 2L * heads.headDim() * dtype.bytes();
        if (group.blockBytes() % (contentBytes * group.blockTokens()) != 0) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "a block of "
                            + group.blockBytes()
                            + " bytes is not K and V of "
                            + group.blockTokens()
                            + " tokens with heads of "
                            + heads.headDim()
                            + " elements in "
                            + dtype.label());
        }
        for (String layer : group.layers()) {
            if (layer.contains("/") || layer.contains("\0") || layer.startsWith(".")) {
                throw new KvFerryException(
                        ErrorCode.INCOMPATIBLE, "layer '" + layer + "' is no file name");
            }
        }
    }

    /// Tokens of a prompt that the layout keeps: whole blocks, and never the last token.
    ///
    /// vLLM names a folder after `align(n)` when it stores and looks for `align(n - 1)`, so that a
    /// prompt of `k * block + 1` tokens never finds its own folder. Here both are `align(n)`: what
    /// vLLM stored is found, and vLLM finds what is stored here, except for prompts of `k * block +
    /// 1` tokens.
    public static int align(int tokens, int blockTokens) {
        return tokens <= 0 ? 0 : (tokens - 1) / blockTokens * blockTokens;
    }

    /// The folder's name: MD5 of the token ids as int64, then the multimodal hashes joined by `-`.
    public static String digest(int[] tokens, int count, List<String> multimodalHashes) {
        var bytes =
                ByteBuffer.allocate(Math.multiplyExact(count, Long.BYTES))
                        .order(ByteOrder.LITTLE_ENDIAN);
        for (int i = 0; i < count; i++) {
            bytes.putLong(tokens[i]);
        }
        try {
            var md5 = MessageDigest.getInstance("MD5"); // a name, not a proof
            md5.update(bytes.flip());
            md5.update(String.join("-", multimodalHashes).getBytes(StandardCharsets.UTF_8));
            return HexFormat.of().formatHex(md5.digest());
        } catch (NoSuchAlgorithmException e) {
            throw new KvFerryException(
                    ErrorCode.UNAVAILABLE,
                    "this Java has no MD5, which names vLLM's folders: " + e,
                    e);
        }
    }

    /// Whether every layer of the prompt is there, whole, and of this namespace.
    public boolean holds(String digest, int tokens) {
        for (String layer : group.layers()) {
            try (SafetensorsFile file = open(digest, layer)) {
                check(file, layer, tokens);
            } catch (KvFerryException | InternalError _) {
                return false; // missing, cut (also just now), foreign: a miss, whatever the reason
            }
        }
        return true;
    }

    /// Fills blocks `first` up to the end of the prompt; `blocks` lists them from `first` on, one
    /// segment per layer.
    ///
    /// @throws KvFerryException [ErrorCode#MISS], [ErrorCode#CORRUPT], [ErrorCode#INCOMPATIBLE],
    ///   [ErrorCode#STORAGE_IO]; blocks may then be partly filled
    public void read(String digest, int tokens, int first, List<List<MemorySegment>> blocks) {
        for (int layer = 0; layer < group.layers().size(); layer++) {
            String name = group.layers().get(layer);
            try (SafetensorsFile file = open(digest, name)) {
                MemorySegment tensor = check(file, name, tokens);
                for (int i = 0; i < blocks.size(); i++) {
                    long at = (first + i) * group.blockBytes();
                    MemorySegment target = blocks.get(i).get(layer);
                    MemorySegment.copy(tensor, at, target, 0, group.blockBytes());
                }
            } catch (InternalError e) { // the system's answer to a read behind the end of a file
                throw new KvFerryException(
                        ErrorCode.STORAGE_IO,
                        "a file of "
                                + root.resolve(digest)
                                + " was cut while it was read; vLLM writes in place, import again later",
                        e);
            }
        }
    }

    /// Writes a whole prompt from its blocks, one segment per layer each; readers see the folder
    /// complete or not at all.
    ///
    /// @return false when it was there already
    /// @throws KvFerryException [ErrorCode#STORAGE_IO]; nothing is left behind then
    public boolean write(String digest, int tokens, List<List<MemorySegment>> blocks) {
        if (holds(digest, tokens)) {
            return false;
        }
        Path temporary = root.resolve(".kvferry-" + UUID.randomUUID());
        try {
            Files.createDirectories(temporary);
            for (int layer = 0; layer < group.layers().size(); layer++) {
                writeLayer(
                        temporary.resolve(group.layers().get(layer) + ".safetensors"),
                        tokens,
                        layer,
                        blocks);
            }
            publish(temporary, root.resolve(digest));
            return true;
        } catch (IOException e) {
            throw FileTrouble.exception("cannot write " + root.resolve(digest), e);
        } finally {
            remove(temporary);
        }
    }

    private void writeLayer(Path file, int tokens, int layer, List<List<MemorySegment>> blocks) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment tensor = arena.allocate(group.blockBytes() * blocks.size(), 64);
            for (int i = 0; i < blocks.size(); i++) {
                MemorySegment source = blocks.get(i).get(layer);
                MemorySegment.copy(source, 0, tensor, i * group.blockBytes(), group.blockBytes());
            }
            SafetensorsWriter.write(
                    file,
                    Map.of(NAMESPACE, namespace),
                    List.of(new SafetensorsWriter.Tensor(TENSOR, type(), shape(tokens), tensor)),
                    false);
        }
    }

    private SafetensorsFile open(String digest, String layer) {
        return SafetensorsFile.open(root.resolve(digest).resolve(layer + ".safetensors"));
    }

    private MemorySegment check(SafetensorsFile file, String layer, int tokens) {
        TensorInfo info = file.info(TENSOR);
        if (info.type() != type() || !info.shape().equals(shape(tokens))) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    layer
                            + " holds "
                            + info.type()
                            + info.shape()
                            + ", this engine needs "
                            + type()
                            + shape(tokens));
        }
        String found = file.metadata().getOrDefault(NAMESPACE, namespace);
        if (!found.equals(namespace)) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE, layer + " was written by another model or setting");
        }
        return file.segment(TENSOR);
    }

    private List<Long> shape(int tokens) {
        long heads = group.blockBytes() / group.blockTokens() / contentBytes;
        return List.of((long) tokens, heads, contentBytes / dtype.bytes());
    }

    private TensorType type() {
        return switch (dtype) {
            case FLOAT32 -> TensorType.F32;
            case FLOAT16 -> TensorType.F16;
            case BFLOAT16 -> TensorType.BF16;
            case FP8_E4M3 -> TensorType.F8_E4M3;
            case FP8_E5M2 -> TensorType.F8_E5M2;
            case INT8 -> TensorType.I8;
            case UINT8 -> TensorType.U8;
            case INT32 -> TensorType.I32;
            case INT64 -> TensorType.I64;
        };
    }

    /// A rename of the folder if the name is free; else file by file, which completes one that
    /// lacks files.
    private static void publish(Path temporary, Path target) throws IOException {
        try {
            Files.move(temporary, target, StandardCopyOption.ATOMIC_MOVE);
        } catch (FileSystemException _) {
            Files.createDirectories(target);
            try (var files = Files.list(temporary)) {
                for (Path file : files.toList()) {
                    Files.move(
                            file,
                            target.resolve(file.getFileName()),
                            StandardCopyOption.ATOMIC_MOVE,
                            StandardCopyOption.REPLACE_EXISTING);
                }
            }
        }
    }

    private static void remove(Path folder) {
        if (!Files.exists(folder)) {
            return;
        }
        try (var files = Files.list(folder)) {
            for (Path file : files.toList()) {
                Files.deleteIfExists(file);
            }
            Files.deleteIfExists(folder);
        } catch (IOException e) {
            org.slf4j.LoggerFactory.getLogger(ExampleFolder.class)
                    .warn(FileTrouble.describe("temporary folder " + folder + " stays", e));
        }
    }
}
