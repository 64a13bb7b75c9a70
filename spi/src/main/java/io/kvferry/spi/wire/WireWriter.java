// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.wire;

import java.io.IOException;
import java.io.OutputStream;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/// Appends little-endian fields to a growing array. Reuse one per step: [#reset] keeps the array.
///
/// Threading: one thread at a time.
public final class WireWriter {
    private static final VarHandle INT =
            MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);
    private static final VarHandle LONG =
            MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

    private byte[] bytes;
    private int size;

    public WireWriter() {
        this(256);
    }

    public WireWriter(int capacity) {
        bytes = new byte[capacity];
    }

    public WireWriter reset() {
        size = 0;
        return this;
    }

    /// Bytes written so far.
    public int size() {
        return size;
    }

    public WireWriter u8(int value) {
        room(1);
        bytes[size++] = (byte) value;
        return this;
    }

    public WireWriter bool(boolean value) {
        return u8(value ? 1 : 0);
    }

    public WireWriter i32(int value) {
        room(4);
        INT.set(bytes, size, value);
        size += 4;
        return this;
    }

    public WireWriter i64(long value) {
        room(8);
        LONG.set(bytes, size, value);
        size += 8;
        return this;
    }

    public WireWriter f64(double value) {
        return i64(Double.doubleToRawLongBits(value));
    }

    /// A 4-byte length, then UTF-8.
    public WireWriter string(String text) {
        int length = text.length();
        room(Math.addExact(4, length));
        int at = size + 4;
        for (int i = 0; i < length; i++) {
            char letter = text.charAt(i);
            if (letter >= 0x80) {
                return bytes(text.getBytes(StandardCharsets.UTF_8));
            }
            bytes[at + i] = (byte) letter; // ids come in every step, and need no copy of theirs
        }
        INT.set(bytes, size, length);
        size = at + length;
        return this;
    }

    /// A 4-byte length, then the bytes.
    public WireWriter bytes(byte[] data) {
        i32(data.length);
        return raw(data, 0, data.length);
    }

    /// The bytes alone.
    public WireWriter raw(byte[] data, int from, int length) {
        room(length);
        System.arraycopy(data, from, bytes, size, length);
        size += length;
        return this;
    }

    /// A 4-byte count, then the numbers.
    public WireWriter ints(int[] values) {
        i32(values.length);
        room(Math.multiplyExact(4, values.length));
        for (int value : values) {
            INT.set(bytes, size, value);
            size += 4;
        }
        return this;
    }

    public WireWriter longs(long[] values) {
        i32(values.length);
        room(Math.multiplyExact(8, values.length));
        for (long value : values) {
            LONG.set(bytes, size, value);
            size += 8;
        }
        return this;
    }

    /// Writes out what was written here, without a copy of it.
    public void writeTo(OutputStream out) throws IOException {
        out.write(bytes, 0, size);
    }

    public byte[] toByteArray() {
        return Arrays.copyOf(bytes, size);
    }

    /// A payload with a copy of what was written; [Payload#EMPTY] if nothing was.
    public Payload toPayload(int version) {
        return size == 0 ? Payload.EMPTY : new Payload(version, toByteArray());
    }

    private void room(int more) {
        int needed = Math.addExact(size, more);
        if (needed > bytes.length) {
            bytes =
                    Arrays.copyOf(
                            bytes,
                            (int)
                                    Math.min(
                                            Integer.MAX_VALUE - 8L,
                                            Math.max(needed, bytes.length * 2L)));
        }
    }
}
