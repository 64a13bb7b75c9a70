// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.safetensors;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

class SafetensorsTest {
    @TempDir Path folder;

    /// A file as the reference implementation writes it: two tensors, metadata, header padded to 8
    /// bytes.
    private static final String GOLDEN_HEADER =
            "{\"__metadata__\":{\"format\":\"pt\"},"
                    + "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                    + "\"a\":{\"dtype\":\"U8\",\"shape\":[1,3],\"data_offsets\":[8,11]}}    ";

    private static byte[] goldenData() {
        return ByteBuffer.allocate(11)
                .order(ByteOrder.LITTLE_ENDIAN)
                .putFloat(1.5f)
                .putFloat(-2f)
                .put(new byte[] {7, 8, 9})
                .array();
    }

    private Path file(String header, byte[] data) throws IOException {
        byte[] json = header.getBytes(StandardCharsets.UTF_8);
        return raw(json.length, json, data);
    }

    private Path raw(long length, byte[] json, byte[] data) throws IOException {
        ByteBuffer all =
                ByteBuffer.allocate(8 + json.length + data.length).order(ByteOrder.LITTLE_ENDIAN);
        all.putLong(length).put(json).put(data);
        return Files.write(folder.resolve("x.safetensors"), all.array());
    }

    private static void assertRefused(Path path, ErrorCode code, String hint) {
        assertThatThrownBy(() -> SafetensorsFile.open(path).close())
                .isInstanceOfSatisfying(
                        KvFerryException.class, e -> assertThat(e.code()).isEqualTo(code))
                .hasMessageContaining(hint)
                .hasMessageContaining("x.safetensors");
    }

    /// Opening a FIFO to read waits for its writer.
    @Test
    void refusesAFifo() throws Exception {
        Path fifo = folder.resolve("x.safetensors");
        assumeTrue(
                new ProcessBuilder("mkfifo", fifo.toString()).start().waitFor() == 0, "no mkfifo");
        var opener =
                Thread.ofPlatform()
                        .daemon()
                        .start(() -> assertRefused(fifo, ErrorCode.CORRUPT, "not a regular file"));
        assertThat(opener.join(Duration.ofSeconds(30))).isTrue();
        assertRefused(fifo, ErrorCode.CORRUPT, "not a regular file");
    }

    @Test
    void readsTheGoldenBytes() throws IOException {
        assertThat(GOLDEN_HEADER.length() % 8).isZero();
        try (var file = SafetensorsFile.open(file(GOLDEN_HEADER, goldenData()))) {
            assertThat(file.metadata()).containsExactly(Map.entry("format", "pt"));
            assertThat(file.tensors().keySet()).containsExactly("b", "a");
            assertThat(file.info("a"))
                    .isEqualTo(new TensorInfo("a", TensorType.U8, List.of(1L, 3L), 8, 11));
            assertThat(file.segment("b").getAtIndex(ValueLayout.JAVA_FLOAT_UNALIGNED, 1))
                    .isEqualTo(-2f);
            assertThat(file.segment("a").toArray(ValueLayout.JAVA_BYTE)).containsExactly(7, 8, 9);
            assertThat(file.segment("a").isReadOnly()).isTrue();
            assertThatThrownBy(() -> file.segment("c"))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.MISS));
        }
    }

    @Test
    void writesTheGoldenBytes() throws IOException {
        Path golden = file(GOLDEN_HEADER, goldenData());
        MemorySegment data = MemorySegment.ofArray(goldenData());
        var a =
                new SafetensorsWriter.Tensor(
                        "a", TensorType.U8, List.of(1L, 3L), data.asSlice(8, 3));
        var b = new SafetensorsWriter.Tensor("b", TensorType.F32, List.of(2L), data.asSlice(0, 8));
        Path written = folder.resolve("w.safetensors");
        SafetensorsWriter.write(written, Map.of("format", "pt"), List.of(a, b), true);
        assertThat(written).hasSameBinaryContentAs(golden);
    }

    @Test
    void roundTripsOddNamesEmptyTensorsAndScalars() {
        Path path = folder.resolve("r.safetensors");
        var name = "model.\"\\\u00e9\n\ud83d\ude00";
        SafetensorsWriter.write(
                path,
                Map.of(),
                List.of(
                        tensor(name, List.of(), 2),
                        tensor("empty", List.of(4L, 0L), 0),
                        tensor("empty2", List.of(0L), 0),
                        tensor("m", List.of(3L, 5L), 30)),
                false);
        try (var file = SafetensorsFile.open(path)) {
            assertThat(file.tensors()).containsOnlyKeys(name, "empty", "empty2", "m");
            assertThat(file.info(name).shape()).isEmpty();
            assertThat(file.segment("empty").byteSize()).isZero();
            assertThat(file.segment("m").byteSize()).isEqualTo(30);
        }
    }

    private static SafetensorsWriter.Tensor tensor(String name, List<Long> shape, int bytes) {
        return new SafetensorsWriter.Tensor(
                name, TensorType.BF16, shape, MemorySegment.ofArray(new byte[bytes]));
    }

    @Test
    void replacesAnOlderFileAndLeavesNoTemporary() throws IOException {
        Path path = folder.resolve("r.safetensors");
        SafetensorsWriter.write(path, Map.of(), List.of(tensor("old", List.of(1L), 2)), false);
        SafetensorsWriter.write(path, Map.of(), List.of(tensor("new", List.of(1L), 2)), false);
        try (var file = SafetensorsFile.open(path);
                var left = Files.list(folder)) {
            assertThat(file.tensors()).containsOnlyKeys("new");
            assertThat(left).containsExactly(path);
        }
    }

    @Test
    void leavesTheOldFileAndNoTemporaryWhenAWriteFails() throws IOException {
        Path occupied = Files.createDirectory(folder.resolve("r.safetensors"));
        Files.writeString(occupied.resolve("keep"), "x");
        assertThatThrownBy(() -> SafetensorsWriter.write(occupied, Map.of(), List.of(), false))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.STORAGE_IO));
        try (var left = Files.list(folder)) {
            assertThat(left).containsExactly(occupied);
        }
    }

    @Test
    void refusesTensorsThatContradictTheirShape() {
        assertThatThrownBy(() -> tensor("t", List.of(2L), 2))
                .hasMessageContaining("takes 4 bytes, data has 2");
        assertThatThrownBy(() -> tensor("t", List.of(-2L), 2)).hasMessageContaining("overflows");
        assertThatThrownBy(() -> tensor("__metadata__", List.of(1L), 2))
                .hasMessageContaining("reserved");
        assertThatThrownBy(() ->
                        SafetensorsWriter.write(
                                folder.resolve("d"),
                                Map.of(),
                                List.of(tensor("t", List.of(1L), 2), tensor("t", List.of(1L), 2)),
                                false))
                .hasMessageContaining("twice");
    }

    @Test
    void namesAMissingFile() {
        assertRefused(folder.resolve("x.safetensors"), ErrorCode.MISS, "no safetensors file");
    }

    @Test
    void refusesFilesTooShortForALength() throws IOException {
        assertRefused(
                Files.write(folder.resolve("x.safetensors"), new byte[7]),
                ErrorCode.CORRUPT,
                "7 bytes");
        assertRefused(
                Files.write(folder.resolve("x.safetensors"), new byte[0]),
                ErrorCode.CORRUPT,
                "0 bytes");
    }

    @ParameterizedTest
    @ValueSource(
            longs = {
                0,
                1,
                -1,
                Long.MIN_VALUE,
                Long.MAX_VALUE,
                SafetensorsFile.MAX_HEADER_BYTES + 1
            })
    void refusesHeaderLengthsOutOfBounds(long length) throws IOException {
        assertRefused(
                raw(length, "{}".getBytes(StandardCharsets.UTF_8), new byte[0]),
                ErrorCode.CORRUPT,
                "is outside");
    }

    @Test
    void refusesAHeaderThatIsCutOff() throws IOException {
        assertRefused(
                raw(3, "{}".getBytes(StandardCharsets.UTF_8), new byte[0]),
                ErrorCode.CORRUPT,
                "exceeds");
    }

    @Test
    void refusesEveryTruncationOfAGoodFile() throws IOException {
        byte[] good = Files.readAllBytes(file(GOLDEN_HEADER, goldenData()));
        for (int n = 0; n < good.length; n++) {
            Path cut = Files.write(folder.resolve("x.safetensors"), Arrays.copyOf(good, n));
            assertRefused(cut, ErrorCode.CORRUPT, "");
        }
        byte[] longer = Arrays.copyOf(good, good.length + 1);
        assertRefused(
                Files.write(folder.resolve("x.safetensors"), longer),
                ErrorCode.CORRUPT,
                "the file holds 12");
    }

    @Test
    void refusesHeadersThatAreNotUtf8() throws IOException {
        byte[] utf16 = "{}".getBytes(StandardCharsets.UTF_16LE);
        assertRefused(raw(utf16.length, utf16, new byte[0]), ErrorCode.CORRUPT, "");
        byte[] broken = {'{', '"', (byte) 0xc0, '"', ':', '1', '}'};
        assertRefused(raw(broken.length, broken, new byte[0]), ErrorCode.CORRUPT, "not UTF-8");
    }

    /// Each header is followed by 8 data bytes; T stands for a good tensor over [0, 8).
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "[]|'{'",
                "' {}'|'{'",
                "{}|describes 0 data bytes",
                "{\"a\":T} x|",
                "{\"a\":T}{}|follows",
                "{\"a\":T,\"a\":T}|uplicate",
                "{\"a\":T,\"b\":T}|overlap",
                "{\"a\":1}|expected START_OBJECT",
                "{\"a\":{}}|needs dtype",
                "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}|needs dtype",
                "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,9]}}|two data_offsets",
                "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}|unknown field 'x'",
                "{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}|takes 12 bytes",
                "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}|takes 8 bytes",
                "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}|hole",
                "{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}|the file holds 8",
                "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}|the file holds 8",
                "{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}|negative",
                "{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}|VALUE_NUMBER_FLOAT",
                "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}|overflows",
                "{\"a\":{\"dtype\":\"F32\",\"shape\":[0,4294967296,4294967296],\"data_offsets\":[0,0]}}|overflows",
                "{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,8]}}|",
                "{\"a\":{\"dtype\":\"F32\",\"shape\":[[2]],\"data_offsets\":[0,8]}}|expected VALUE_NUMBER_INT",
                "{\"a\":{\"dtype\":\"F32\",\"shape\":[[[[[[2]]]]]],\"data_offsets\":[0,8]}}|",
                "{\"__metadata__\":{\"k\":1},\"a\":T}|expected VALUE_STRING",
                "{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"},\"a\":T}|uplicate",
            })
    void refusesHostileHeaders(String header, String hint) throws IOException {
        String good = "{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}";
        Path path =
                file(
                        header.replace("T}", good + "}").replace(":T,", ":" + good + ","),
                        new byte[8]);
        assertRefused(path, ErrorCode.CORRUPT, hint == null ? "" : hint);
    }

    @Test
    void namesADtypeItDoesNotKnow() throws IOException {
        Path path =
                file(
                        "{\"a\":{\"dtype\":\"F4\",\"shape\":[16],\"data_offsets\":[0,8]}}",
                        new byte[8]);
        assertRefused(path, ErrorCode.INCOMPATIBLE, "'F4'");
    }
}
