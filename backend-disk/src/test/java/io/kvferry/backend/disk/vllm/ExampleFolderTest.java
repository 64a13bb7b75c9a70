// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.vllm;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.toolkit.safetensors.SafetensorsFile;
import io.kvferry.toolkit.safetensors.SafetensorsWriter;
import io.kvferry.toolkit.safetensors.TensorType;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.AbstractList;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

class ExampleFolderTest {
    private static final int BLOCK = 16;
    private static final int HEADS = 2;
    private static final int CONTENT = 4; // a head's K and V of two elements each
    private static final int ROW = HEADS * CONTENT;
    private static final KvCacheGroup GROUP =
            new KvCacheGroup(
                    0,
                    KvCacheGroup.Kind.FULL_ATTENTION,
                    new KvFormat.Heads(DType.FLOAT32, KvLayout.LBNHC, HEADS, CONTENT / 2),
                    List.of("model.layers.0.self_attn.attn", "model.layers.1.self_attn.attn"),
                    BLOCK,
                    4L * BLOCK * ROW);
    private static final KvCacheSpec CACHE = new KvCacheSpec(List.of(GROUP), 8);
    private static final int[] PROMPT = IntStream.range(0, 40).toArray();

    @TempDir Path root;

    private static CacheNamespace namespace(String model) {
        return new CacheNamespace(model, "test", DType.FLOAT32, KvLayout.LBNHC, 1, BLOCK, 1, 1, "");
    }

    private ExampleFolder folder(String model) {
        return new ExampleFolder(root, CACHE, namespace(model));
    }

    /// Two blocks of two layers, every float telling layer, token, head and column.
    private static List<List<MemorySegment>> blocks(boolean filled) {
        var blocks = new ArrayList<List<MemorySegment>>();
        for (int block = 0; block < 2; block++) {
            var layers = new ArrayList<MemorySegment>();
            for (int layer = 0; layer < 2; layer++) {
                MemorySegment memory = Arena.ofAuto().allocate(GROUP.blockBytes(), 64);
                for (int i = 0; filled && i < BLOCK * ROW; i++) {
                    int token = block * BLOCK + i / ROW;
                    memory.setAtIndex(ValueLayout.JAVA_FLOAT, i, value(layer, token, i % ROW));
                }
                layers.add(memory);
            }
            blocks.add(layers);
        }
        return blocks;
    }

    private static float value(int layer, int token, int column) {
        return layer * 10_000 + token * 100 + column / CONTENT * 10 + column % CONTENT;
    }

    @Test
    void keepsWholeBlocksBeforeTheLastToken() {
        int[] lengths = {0, 1, 15, 16, 17, 32, 33};
        assertThat(IntStream.of(lengths).map(n -> ExampleFolder.align(n, BLOCK)))
                .containsExactly(0, 0, 0, 0, 16, 16, 32);
    }

    /// Expected values from Python: hashlib.md5(torch.tensor(ids).numpy().tobytes() +
    /// "-".join(hashes).encode()).
    @Test
    void namesFoldersAsVllmDoes() {
        assertThat(ExampleFolder.digest(PROMPT, 16, List.of()))
                .isEqualTo("a257bb96b9c4f2fce086deecb640d4a8");
        assertThat(ExampleFolder.digest(PROMPT, 16, List.of("a1", "b2")))
                .isEqualTo("9b5284770aefcd561fd451800265dcad");
    }

    /// vLLM indexes its view `[block, head, token, content]` with `[blocks, :, offsets]`.
    @Test
    void writesTheTensorThatVllmReads() {
        assertThat(folder("m").write("d", 32, blocks(true))).isTrue();
        for (int layer = 0; layer < 2; layer++) {
            try (var file =
                    SafetensorsFile.open(
                            root.resolve("d")
                                    .resolve(GROUP.layers().get(layer) + ".safetensors"))) {
                assertThat(file.info("kv_cache").type()).isEqualTo(TensorType.F32);
                assertThat(file.info("kv_cache").shape()).containsExactly(32L, 2L, 4L);
                MemorySegment tensor = file.segment("kv_cache");
                for (int i = 0; i < 32 * ROW; i++) {
                    assertThat(tensor.get(ValueLayout.JAVA_FLOAT_UNALIGNED, 4L * i))
                            .isEqualTo(value(layer, i / ROW, i % ROW));
                }
            }
        }
        assertThat(folder("m").write("d", 32, blocks(true))).isFalse();
    }

    @Test
    void readsFromAnyBlockOn() {
        folder("m").write("d", 32, blocks(true));
        var target = blocks(false);
        folder("m").read("d", 32, 1, target.subList(1, 2));
        assertThat(target.get(0).get(0).mismatch(blocks(false).get(0).get(0))).isEqualTo(-1);
        assertThat(target.get(1).get(1).mismatch(blocks(true).get(1).get(1))).isEqualTo(-1);
    }

    @Test
    void takesFoldersWithoutANamespaceAndRefusesThoseOfAnother() throws Exception {
        folder("m").write("d", 32, blocks(true));
        assertThat(folder("m").holds("d", 32)).isTrue();
        assertThat(folder("other").holds("d", 32)).isFalse();
        assertThatThrownBy(() -> folder("other").read("d", 32, 0, blocks(false)))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.INCOMPATIBLE));
        Path written = Files.createDirectories(root.resolve("by-vllm"));
        for (String layer : GROUP.layers()) {
            MemorySegment tensor = Arena.ofAuto().allocate(4L * 32 * ROW, 8);
            SafetensorsWriter.write(
                    written.resolve(layer + ".safetensors"),
                    Map.of(),
                    List.of(
                            new SafetensorsWriter.Tensor(
                                    "kv_cache", TensorType.F32, List.of(32L, 2L, 4L), tensor)),
                    false);
        }
        assertThat(folder("m").holds("by-vllm", 32)).isTrue();
        assertThat(folder("m").holds("by-vllm", 16)).isFalse();
    }

    @Test
    void missesAndThenMendsAnIncompleteFolder() throws Exception {
        folder("m").write("d", 32, blocks(true));
        Path layer = root.resolve("d").resolve(GROUP.layers().get(1) + ".safetensors");
        byte[] whole = Files.readAllBytes(layer);
        Files.write(layer, java.util.Arrays.copyOf(whole, whole.length - 1));
        assertThat(folder("m").holds("d", 32)).isFalse();
        assertThat(folder("m").write("d", 32, blocks(true))).isTrue();
        assertThat(Files.readAllBytes(layer)).isEqualTo(whole);
        try (var left = Files.list(root)) {
            assertThat(left).containsExactly(root.resolve("d"));
        }
    }

    /// vLLM writes files in place, also those that are mapped here.
    @Test
    void aFileThatIsCutWhileItIsReadIsAStorageFailure() {
        folder("m").write("d", 32, blocks(true));
        var target = blocks(false);
        Path layer = root.resolve("d").resolve(GROUP.layers().getFirst() + ".safetensors");
        var cutting =
                new AbstractList<List<MemorySegment>>() {
                    @Override
                    public List<MemorySegment> get(int block) {
                        try (var file = FileChannel.open(layer, StandardOpenOption.WRITE)) {
                            file.truncate(0); // checked and mapped before
                        } catch (IOException e) {
                            throw new UncheckedIOException(e);
                        }
                        return target.get(block);
                    }

                    @Override
                    public int size() {
                        return target.size();
                    }
                };
        assertThatThrownBy(() -> folder("m").read("d", 32, 0, cutting))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.STORAGE_IO))
                .hasMessageContaining("was cut while it was read");
    }
}
