// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.msgpack;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.msgpack.core.MessageIntegerOverflowException;
import org.msgpack.core.MessagePack;
import org.msgpack.core.MessagePackException;
import org.msgpack.core.MessageUnpacker;
import org.msgpack.value.ValueType;

import java.io.IOException;
import java.nio.charset.CodingErrorAction;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;

/// Strict reading of one msgpack message: no coercion between types, every announced count checked
/// against the bytes that are left before anything is allocated, each failure [ErrorCode#PROTOCOL]
/// with the field's name.
///
/// Threading: one thread.
public final class MsgpackFields {
    /// No string of the protocol comes near it.
    private static final int MAX_STRING_BYTES = 1 << 16;

    static {
        MsgpackSetup.apply();
    }

    private static final MessagePack.UnpackerConfig STRICT =
            new MessagePack.UnpackerConfig()
                    .withAllowReadingBinaryAsString(false)
                    .withActionOnMalformedString(CodingErrorAction.REPORT)
                    .withActionOnUnmappableString(CodingErrorAction.REPORT)
                    .withStringSizeLimit(MAX_STRING_BYTES);

    private final MessageUnpacker in;
    private final long length;
    private final int mostItems;
    private String field = "$";

    /// A step of reading.
    @FunctionalInterface
    private interface Step<T> {
        T run() throws IOException;
    }

    /// Reads the value of a known key, or answers false for an unknown one, which is then skipped.
    @FunctionalInterface
    public interface FieldReader {
        boolean read(String key);
    }

    public MsgpackFields(byte[] message) {
        this(message, Integer.MAX_VALUE);
    }

    /// @param mostItems of one array or map, for messages of whose bytes one may become an object
    public MsgpackFields(byte[] message, int mostItems) {
        this.in = STRICT.newUnpacker(message);
        this.length = message.length;
        this.mostItems = mostItems;
    }

    /// Reads a whole message that is one map with string keys, each at most once.
    public void fields(FieldReader reader) {
        int count = count("object", in::unpackMapHeader, ValueType.MAP, 2);
        Set<String> seen = new HashSet<>();
        for (int i = 0; i < count; i++) {
            field = "$";
            var key = string();
            if (!seen.add(key)) {
                throw malformed("duplicate key `" + shown(key) + "`");
            }
            field = shown(key);
            if (!reader.read(key)) {
                guarded(
                        "value",
                        () -> {
                            in.skipValue();
                            return Boolean.TRUE;
                        });
            }
        }
        field = "$";
        if (in.getTotalReadBytes() != length) {
            throw malformed((length - in.getTotalReadBytes()) + " bytes follow the message");
        }
    }

    public int mapCount() {
        return count("object", in::unpackMapHeader, ValueType.MAP, 2);
    }

    public int arrayCount() {
        return count("array", in::unpackArrayHeader, ValueType.ARRAY, 1);
    }

    /// Fails unless an array of exactly `expected` items comes next.
    public void arrayOf(int expected) {
        int count = arrayCount();
        if (count != expected) {
            throw malformed("Expected `array` of length " + expected + ", got " + count);
        }
    }

    public boolean nextIsNil() {
        return guarded("value", () -> in.getNextFormat().getValueType() == ValueType.NIL);
    }

    public boolean nextIsInteger() {
        return guarded("value", () -> in.getNextFormat().getValueType() == ValueType.INTEGER);
    }

    public void nil() {
        guarded(
                "nil",
                () -> {
                    in.unpackNil();
                    return Boolean.TRUE;
                });
    }

    public String string() {
        return guarded("str", in::unpackString);
    }

    public byte[] binary() {
        int bytes = count("bin", in::unpackBinaryHeader, ValueType.BINARY, 1);
        return guarded("bin", () -> in.readPayload(bytes));
    }

    public int int32() {
        return guarded("int", in::unpackInt);
    }

    /// A number of the signed or unsigned 64-bit range; the latter's upper half comes out negative.
    public long int64() {
        return guarded(
                "int",
                () -> {
                    try {
                        return in.unpackLong();
                    } catch (MessageIntegerOverflowException e) {
                        return e.getBigInteger().longValue();
                    }
                });
    }

    public int[] ints() {
        var values = new int[arrayCount()];
        for (int i = 0; i < values.length; i++) {
            values[i] = int32();
        }
        return values;
    }

    public long[] longs() {
        var values = new long[arrayCount()];
        for (int i = 0; i < values.length; i++) {
            values[i] = int64();
        }
        return values;
    }

    public List<String> strings() {
        var values = new String[arrayCount()];
        Arrays.setAll(values, _ -> string());
        return List.of(values);
    }

    public List<int[]> intLists() {
        int count = arrayCount();
        var lists = new ArrayList<int[]>(count);
        for (int i = 0; i < count; i++) {
            lists.add(ints());
        }
        return lists;
    }

    public KvFerryException malformed(String what) {
        return new KvFerryException(ErrorCode.PROTOCOL, what + " - at `" + field + "`");
    }

    private int count(String expected, Step<Integer> header, ValueType type, int itemBytes) {
        guarded(
                expected,
                () -> {
                    var next = in.getNextFormat().getValueType();
                    if (next != type) {
                        throw malformed(
                                "Expected `"
                                        + expected
                                        + "`, got `"
                                        + next.name().toLowerCase(Locale.ROOT)
                                        + "`");
                    }
                    return Boolean.TRUE;
                });
        int count = guarded(expected, header);
        if (count < 0 || (long) count * itemBytes > length - in.getTotalReadBytes()) {
            throw malformed(
                    "announces "
                            + count
                            + " items, "
                            + (length - in.getTotalReadBytes())
                            + " bytes are left");
        }
        if (count > mostItems) {
            throw malformed("announces " + count + " items, more than " + mostItems);
        }
        return count;
    }

    private <T> T guarded(String expected, Step<T> step) {
        try {
            return step.run();
        } catch (MessagePackException | IOException e) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL,
                    "Expected `" + expected + "` - at `" + field + "`: " + e.getMessage(),
                    e);
        }
    }

    private static String shown(String key) {
        return key.length() > 64 ? key.substring(0, 64) + ".." : key;
    }
}
