// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.wire;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/// Reads what a [WireWriter] wrote. Every length is checked against what is left before anything is
/// allocated, so hostile bytes cost no memory; any violation is [ErrorCode#PROTOCOL] with the
/// position.
///
/// Threading: one thread at a time.
public final class WireReader {
    private static final VarHandle INT =
            MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);
    private static final VarHandle LONG =
            MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

    private final byte[] bytes;
    private int at;

    /// A reader over all of `bytes`, which is not copied.
    public WireReader(byte[] bytes) {
        this.bytes = bytes;
    }

    /// Bytes not read yet.
    public int remaining() {
        return bytes.length - at;
    }

    public int u8() {
        need(1, 1);
        return bytes[at++] & 0xff;
    }

    public boolean bool() {
        int value = u8();
        if (value > 1) {
            throw malformed("not a boolean: " + value);
        }
        return value == 1;
    }

    public int i32() {
        need(1, 4);
        int value = (int) INT.get(bytes, at);
        at += 4;
        return value;
    }

    public long i64() {
        need(1, 8);
        long value = (long) LONG.get(bytes, at);
        at += 8;
        return value;
    }

    public double f64() {
        return Double.longBitsToDouble(i64());
    }

    public String string() {
        int length = count(1);
        try {
            var text =
                    StandardCharsets.UTF_8
                            .newDecoder()
                            .decode(ByteBuffer.wrap(bytes, at, length))
                            .toString();
            at += length;
            return text;
        } catch (CharacterCodingException e) {
            throw malformed("not UTF-8");
        }
    }

    public byte[] bytes() {
        return raw(count(1));
    }

    public byte[] raw(int length) {
        need(length, 1);
        at += length;
        return Arrays.copyOfRange(bytes, at - length, at);
    }

    public int[] ints() {
        var values = new int[count(4)];
        for (int i = 0; i < values.length; i++, at += 4) {
            values[i] = (int) INT.get(bytes, at);
        }
        return values;
    }

    public long[] longs() {
        var values = new long[count(8)];
        for (int i = 0; i < values.length; i++, at += 8) {
            values[i] = (long) LONG.get(bytes, at);
        }
        return values;
    }

    /// A 4-byte count of items that take at least `itemBytes` each, checked against what is left.
    public int count(int itemBytes) {
        int count = i32();
        need(count, itemBytes);
        return count;
    }

    /// Call when done: bytes left over mean that the two sides disagree on the form.
    public void end() {
        if (at != bytes.length) {
            throw malformed((bytes.length - at) + " bytes too many");
        }
    }

    private void need(int count, int itemBytes) {
        if (count < 0 || (long) count * itemBytes > bytes.length - at) {
            throw malformed(
                    "wants "
                            + count
                            + " x "
                            + itemBytes
                            + " bytes, "
                            + (bytes.length - at)
                            + " left");
        }
    }

    private KvFerryException malformed(String what) {
        return new KvFerryException(
                ErrorCode.PROTOCOL, "malformed payload at byte " + at + ": " + what);
    }
}
