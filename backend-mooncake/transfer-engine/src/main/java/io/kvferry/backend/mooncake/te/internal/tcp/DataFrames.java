// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import java.io.IOException;
import java.nio.ByteBuffer;

/// The bytes of the data port, little-endian.
///
/// Mooncake: a request is `u64 size | u64 address | u8 opcode | 7 bytes nobody reads`. With [#V2]
/// set a WRITE is answered by a status once the bytes are in place, and a READ by a status and then
/// the bytes; without, there is no status. A status is `u32 code | "MCTV"`.
///
/// kvferry's extension uses three more opcodes, only towards peers that announced it. A batch is a
/// request header whose size is the sum of all lengths and whose address field is `u32 count | u32
/// flags`, then `u64 incarnation | u64 capability | u64 token`, then `count` times `u64 address |
/// u64 length`, padded, then, for a WRITE, the bytes of all ranges in order and, with [#CHECKED],
/// `u32 CRC32C`, padded. The reply is `u32 code | "KVFY" | u64 range`, padded, then, for a READ
/// that was accepted, bytes and checksum in the same form. Codes are [ErrorCode#wire], 0 is
/// success.
///
/// Padded means zeros up to a multiple of [#LINE] bytes. Without them the bytes behind a reply of
/// 16 would lie 16 bytes off in the cache lines that the kernel copies them to and from, at both
/// ends, which cost READs up to a fifth of their rate.
///
/// The token stands for one attempt to move one part of a transfer. A fence is a request header
/// without size and address, and incarnation, 0 and a token, padded. Its reply, in the form of a
/// batch's, says that nothing of that token is applied any more, nor will be, over whichever
/// connection it comes.
public final class DataFrames {
    public static final int HEADER = 24;
    public static final int STATUS = 8;
    public static final int BATCH_HEADER = 24;
    public static final int BATCH_ENTRY = 16;

    /// Bytes of a cache line of x86-64 and of most ARM processors; part of the protocol.
    static final int LINE = 64;

    /// Of a batch's status, without what pads it.
    static final int STATUS_FIELDS = 16;

    static final int BATCH_STATUS = LINE;

    /// Of a checksum, without what pads it.
    static final int TRAILER_FIELDS = 8;

    static final int TRAILER = LINE;

    public static final int READ = 0;
    public static final int WRITE = 1;
    public static final int V2 = 0x80;
    public static final int BATCH_READ = 0xC0;
    public static final int BATCH_WRITE = 0xC1;
    public static final int FENCE = 0xC2;

    static final int STATUS_OK = 0;
    static final int STATUS_REJECTED = 1;

    /// "MCTV" in the high half of a status.
    static final int MAGIC = 0x4D43_5456;

    /// "KVFY" in the high half of a batch status.
    static final int BATCH_MAGIC = 0x4B56_4659;

    /// Flag of a batch: a CRC32C follows the bytes.
    static final int CHECKED = 1;

    /// Ranges in one batch message at most, which bounds what a receiver has to keep.
    static final int MOST_ENTRIES = 1024;

    private DataFrames() {}

    static void header(ByteBuffer out, long size, long address, int opcode) {
        out.putLong(size).putLong(address).putLong(opcode & 0xFF);
    }

    static void status(ByteBuffer out, int code) {
        out.putInt(code).putInt(MAGIC);
    }

    /// Bytes of a batch ahead of those of its ranges.
    static int batchHead(int count) {
        int bytes = headFields(count);
        return bytes + padding(bytes);
    }

    private static int headFields(int count) {
        return HEADER + BATCH_HEADER + count * BATCH_ENTRY;
    }

    /// Bytes of zeros behind so many.
    private static int padding(int bytes) {
        return -bytes & (LINE - 1);
    }

    static void batchStatus(ByteBuffer out, int code, long range) {
        out.putInt(code).putInt(BATCH_MAGIC).putLong(range);
        pad(out, STATUS_FIELDS);
    }

    static void trailer(ByteBuffer out, int crc) {
        out.putInt(crc).putInt(0);
        pad(out, TRAILER_FIELDS);
    }

    /// @param bytes before the padding, a multiple of 8
    static void pad(ByteBuffer out, int bytes) {
        for (int left = padding(bytes); left > 0; left -= Long.BYTES) {
            out.putLong(0);
        }
    }

    /// Waits for what pads the head of a batch of so many ranges, and passes over it.
    static void unpadHead(WireInput in, int count) throws IOException {
        int bytes = headFields(count);
        unpad(in.need(padding(bytes)), bytes);
    }

    /// Passes over what pads so many bytes.
    static void unpad(ByteBuffer in, int bytes) {
        in.position(in.position() + padding(bytes));
    }
}
