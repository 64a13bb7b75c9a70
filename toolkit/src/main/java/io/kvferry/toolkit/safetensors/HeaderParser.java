// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.safetensors;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import tools.jackson.core.JacksonException;
import tools.jackson.core.JsonParser;
import tools.jackson.core.JsonToken;
import tools.jackson.core.ObjectReadContext;
import tools.jackson.core.StreamReadConstraints;
import tools.jackson.core.StreamReadFeature;
import tools.jackson.core.json.JsonFactory;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/// Reads the JSON header of one file and checks it against the number of data bytes that follow it.
///
/// The rules are those of the reference implementation: an object, no key twice, each tensor with
/// exactly `dtype`, `shape` and `data_offsets`, the tensors laid end to end so that they cover the
/// data without hole or overlap.
final class HeaderParser {
    static final String METADATA = "__metadata__";

    /// Deepest legal nesting is 3 (object, tensor, shape); the bound keeps a hostile header from
    /// costing a deep stack.
    private static final JsonFactory JSON =
            JsonFactory.builder()
                    .enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION)
                    .streamReadConstraints(
                            StreamReadConstraints.builder()
                                    .maxNestingDepth(4)
                                    .maxNumberLength(20)
                                    .build())
                    .build();

    private final String where;
    private final List<TensorInfo> tensors = new ArrayList<>();
    private Map<String, String> metadata = Map.of();

    private HeaderParser(String where) {
        this.where = where;
    }

    /// What a header says: tensors in the order of their bytes, and the free-form strings.
    record Header(Map<String, TensorInfo> tensors, Map<String, String> metadata) {}

    /// Parses `json`.
    ///
    /// @param dataBytes bytes that follow the header in the file
    /// @param where the file's name, for messages
    /// @throws KvFerryException [ErrorCode#CORRUPT] for any breach, [ErrorCode#INCOMPATIBLE] for an
    ///   unknown dtype
    static Header parse(ByteBuffer json, long dataBytes, String where) {
        var parser = new HeaderParser(where);
        try {
            String text = StandardCharsets.UTF_8.newDecoder().decode(json).toString();
            if (!text.startsWith("{")) {
                throw parser.corrupt("the header does not start with '{'");
            }
            try (JsonParser in = JSON.createParser(ObjectReadContext.empty(), text)) {
                parser.readAll(in);
            }
        } catch (CharacterCodingException e) {
            throw new KvFerryException(ErrorCode.CORRUPT, where + ": the header is not UTF-8", e);
        } catch (JacksonException e) {
            throw new KvFerryException(
                    ErrorCode.CORRUPT,
                    where + ": the header is not valid JSON: " + e.getOriginalMessage(),
                    e);
        }
        return parser.checked(dataBytes);
    }

    private void readAll(JsonParser in) {
        expect(in.nextToken(), JsonToken.START_OBJECT, "the header");
        while (in.nextToken() != JsonToken.END_OBJECT) {
            String name = in.currentName();
            expect(in.nextToken(), JsonToken.START_OBJECT, "entry '" + name + "'");
            if (METADATA.equals(name)) {
                metadata = readMetadata(in);
            } else {
                tensors.add(readTensor(in, name));
            }
        }
        if (in.nextToken() != null) {
            throw corrupt("text follows the header object");
        }
    }

    private Map<String, String> readMetadata(JsonParser in) {
        var strings = new LinkedHashMap<String, String>();
        while (in.nextToken() != JsonToken.END_OBJECT) {
            String key = in.currentName();
            expect(in.nextToken(), JsonToken.VALUE_STRING, METADATA + " entry '" + key + "'");
            strings.put(key, in.getString());
        }
        return strings;
    }

    private TensorInfo readTensor(JsonParser in, String name) {
        String type = "";
        List<Long> shape = List.of();
        List<Long> offsets = List.of();
        int fields = 0;
        while (in.nextToken() != JsonToken.END_OBJECT) {
            String field = in.currentName();
            String at = "'" + field + "' of tensor '" + name + "'";
            JsonToken value = in.nextToken();
            switch (field) {
                case "dtype" -> {
                    expect(value, JsonToken.VALUE_STRING, at);
                    type = in.getString();
                    fields |= 1;
                }
                case "shape" -> {
                    shape = readLongs(in, value, at);
                    fields |= 2;
                }
                case "data_offsets" -> {
                    offsets = readLongs(in, value, at);
                    fields |= 4;
                }
                default -> throw corrupt("unknown field " + at);
            }
        }
        if (fields != 7 || offsets.size() != 2) {
            throw corrupt("tensor '" + name + "' needs dtype, shape and two data_offsets");
        }
        return tensor(name, type, shape, offsets.get(0), offsets.get(1));
    }

    private TensorInfo tensor(
            String name, String typeName, List<Long> shape, long begin, long end) {
        TensorType type =
                TensorType.ofName(typeName)
                        .orElseThrow(() ->
                                new KvFerryException(
                                        ErrorCode.INCOMPATIBLE,
                                        where
                                                + ": tensor '"
                                                + name
                                                + "' has dtype '"
                                                + typeName
                                                + "', which this reader does not know"));
        long size;
        try {
            size = TensorInfo.byteSize(type, shape);
        } catch (ArithmeticException e) {
            throw new KvFerryException(
                    ErrorCode.CORRUPT,
                    where + ": tensor '" + name + "' of shape " + shape + " overflows",
                    e);
        }
        if (begin > end || end - begin != size) {
            throw corrupt(
                    "tensor '"
                            + name
                            + "' spans ["
                            + begin
                            + ", "
                            + end
                            + ") but "
                            + type
                            + " of shape "
                            + shape
                            + " takes "
                            + size
                            + " bytes");
        }
        return new TensorInfo(name, type, shape, begin, end);
    }

    private List<Long> readLongs(JsonParser in, JsonToken first, String at) {
        expect(first, JsonToken.START_ARRAY, at);
        var numbers = new ArrayList<Long>();
        for (JsonToken t = in.nextToken(); t != JsonToken.END_ARRAY; t = in.nextToken()) {
            expect(t, JsonToken.VALUE_NUMBER_INT, at);
            long number = in.getLongValue();
            if (number < 0) {
                throw corrupt(at + " holds the negative number " + number);
            }
            numbers.add(number);
        }
        return numbers;
    }

    /// Lays the tensors end to end; equal begins can only be empty tensors, whose order does not
    /// matter.
    private Header checked(long dataBytes) {
        tensors.sort(
                Comparator.comparingLong(TensorInfo::begin).thenComparingLong(TensorInfo::end));
        var byName = new LinkedHashMap<String, TensorInfo>();
        long next = 0;
        for (TensorInfo tensor : tensors) {
            if (tensor.begin() != next) {
                throw corrupt(
                        "tensor '"
                                + tensor.name()
                                + "' begins at "
                                + tensor.begin()
                                + ", expected "
                                + next
                                + (tensor.begin() < next ? " (overlap)" : " (hole)"));
            }
            next = tensor.end();
            byName.put(tensor.name(), tensor);
        }
        if (next != dataBytes) {
            throw corrupt(
                    "the header describes " + next + " data bytes, the file holds " + dataBytes);
        }
        return new Header(
                Collections.unmodifiableMap(byName), Collections.unmodifiableMap(metadata));
    }

    private void expect(JsonToken found, JsonToken wanted, String at) {
        if (found != wanted) {
            throw corrupt(at + ": expected " + wanted + ", found " + found);
        }
    }

    private KvFerryException corrupt(String what) {
        return new KvFerryException(ErrorCode.CORRUPT, where + ": " + what);
    }
}
