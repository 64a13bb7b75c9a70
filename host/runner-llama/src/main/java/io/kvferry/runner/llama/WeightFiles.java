// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.llama;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.files.FileTrouble;
import io.kvferry.toolkit.safetensors.SafetensorsFile;
import io.kvferry.toolkit.safetensors.TensorInfo;

import org.jspecify.annotations.Nullable;

import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

/// The safetensors files of one model folder, read as float32.
///
/// Threading: one thread, for the time of loading.
final class WeightFiles implements AutoCloseable {
    private static final String SINGLE = "model.safetensors";
    private static final String INDEX = "model.safetensors.index.json";

    private static final ValueLayout.OfFloat F32 =
            ValueLayout.JAVA_FLOAT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
    private static final ValueLayout.OfShort I16 =
            ValueLayout.JAVA_SHORT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

    private final Path folder;
    private final Map<String, SafetensorsFile> files = new LinkedHashMap<>();
    private final Map<String, SafetensorsFile> fileOf = new HashMap<>();

    private WeightFiles(Path folder) {
        this.folder = folder;
    }

    /// Maps the single file, or all shards of the index.
    ///
    /// @throws KvFerryException [ErrorCode#MISS] for a file that is not there, [ErrorCode#CORRUPT]
    ///   for one that is not whole
    static WeightFiles open(Path folder) {
        var weights = new WeightFiles(folder);
        boolean opened = false;
        try {
            Path index = folder.resolve(INDEX);
            if (Files.exists(index)) {
                weights.openShards(index);
            } else {
                weights.add(SINGLE);
            }
            opened = true;
            return weights;
        } finally {
            if (!opened) {
                weights.close();
            }
        }
    }

    private void openShards(Path index) {
        try {
            JsonNode map = new JsonMapper().readTree(Files.readAllBytes(index)).path("weight_map");
            var names = new TreeSet<String>();
            map.forEach(name -> names.add(name.asString("")));
            for (String name : names) {
                if (name.isEmpty() || !Path.of(name).equals(Path.of(name).getFileName())) {
                    throw new KvFerryException(
                            ErrorCode.CORRUPT, index + ": '" + name + "' is not a plain file name");
                }
                add(name);
            }
        } catch (IOException e) {
            throw FileTrouble.exception("cannot read " + index, e);
        } catch (JacksonException e) {
            throw new KvFerryException(ErrorCode.CORRUPT, index + ": " + e.getOriginalMessage(), e);
        }
    }

    private void add(String name) {
        SafetensorsFile file = SafetensorsFile.open(folder.resolve(name));
        files.put(name, file);
        file.tensors().keySet().forEach(tensor -> fileOf.put(tensor, file));
    }

    boolean has(String tensor) {
        return fileOf.containsKey(tensor);
    }

    /// The elements of a tensor of exactly this shape, widened.
    ///
    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] when it is missing, shaped otherwise, or
    ///   neither F32, BF16 nor F16
    float[] floats(String tensor, int... shape) {
        @Nullable SafetensorsFile file = fileOf.get(tensor);
        if (file == null) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE, folder + " has no tensor '" + tensor + "'");
        }
        TensorInfo info = file.info(tensor);
        List<Long> wanted = Arrays.stream(shape).mapToObj(Long::valueOf).toList();
        if (!info.shape().equals(wanted)) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    folder
                            + ": tensor '"
                            + tensor
                            + "' has shape "
                            + info.shape()
                            + ", config.json asks for "
                            + wanted);
        }
        MemorySegment bytes = file.segment(tensor);
        float[] out = new float[Math.toIntExact(bytes.byteSize() / info.type().bytes())];
        switch (info.type()) {
            case F32 -> MemorySegment.copy(bytes, F32, 0, out, 0, out.length);
            case BF16 -> {
                for (int i = 0; i < out.length; i++) {
                    out[i] = Float.intBitsToFloat(bytes.getAtIndex(I16, i) << 16);
                }
            }
            case F16 -> {
                for (int i = 0; i < out.length; i++) {
                    out[i] = Float.float16ToFloat(bytes.getAtIndex(I16, i));
                }
            }
            case BOOL, U8, I8, F8_E5M2, F8_E4M3, F8_E8M0, I16, U16, I32, U32, C64, F64, I64, U64 ->
                    throw new KvFerryException(
                            ErrorCode.INCOMPATIBLE,
                            folder
                                    + ": tensor '"
                                    + tensor
                                    + "' is "
                                    + info.type()
                                    + "; F32, BF16 and F16 are read");
        }
        return out;
    }

    /// A projection, kept in files as `[out][in]`.
    Matrix matrix(String tensor, int in, int out) {
        return Matrix.ofFile(floats(tensor, out, in), out, in);
    }

    @Override
    public void close() {
        files.values().forEach(SafetensorsFile::close);
    }
}
