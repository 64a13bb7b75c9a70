// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.block;

import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.disk.AlignedStaging;
import io.kvferry.toolkit.disk.space.KeyDigest;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.security.MessageDigest;
import java.util.List;
import java.util.Objects;
import java.util.zip.CRC32C;

import javax.crypto.Mac;

/// The bytes of a block file, version 3, little-endian:
///
/// | offset | type | field |
/// |---|---|---|
/// | 0 | 8 bytes | magic `KVFBLOC3` |
/// | 8 | u32 | format version |
/// | 12 | u32 | header bytes, a multiple of 4096: where the payload starts |
/// | 16 | 32 bytes | SHA-256 of the namespace text and, with a fleet's key, its id |
/// | 48 | u64 | payload bytes |
/// | 56 | u32 | key bytes |
/// | 60 | u32 | 0 |
/// | 64 | u32 | CRC32C of the payload |
/// | 68 | u32 | CRC32C of the header without this field and without padding |
/// | 72 | u32 | seal: 0 none, 1 HMAC-SHA256 |
/// | 76 | u32 | 0 |
/// | 80 | 32 bytes | seal, of everything but itself, the checksums and padding; else zeros |
/// | 112 | bytes | key, UTF-8 |
///
/// Header and payload are each padded with zeros to a multiple of 4096, so that the whole file can
/// be moved by O_DIRECT in one call. Padding is the only part that no checksum covers.
///
/// The payload is one sequence of bytes. The file does not record the segments it was gathered
/// from; a load may scatter it to other segments. Namespace and key define the meaning and order of
/// the bytes.
///
/// Files of another version have other names, so a store never opens them. They count towards the
/// quota and are evicted like others. A reader can see another version only if its file is evicted
/// and overwritten while open; each version has its own magic, so this is detected as corruption.
/// Version 2 had the bytes of each segment before the key.
///
/// Threading: confined to one I/O thread.
public final class RecordFormat {
    public static final int VERSION = 3;

    private static final ValueLayout.OfInt INT =
            ValueLayout.JAVA_INT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
    private static final ValueLayout.OfLong LONG =
            ValueLayout.JAVA_LONG_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
    private static final ValueLayout.OfLong DIGEST_WORD =
            ValueLayout.JAVA_LONG_UNALIGNED.withOrder(ByteOrder.BIG_ENDIAN);
    private static final long MAGIC =
            0x33434F4C_4246564BL; // "KVFBLOC3" read as a little-endian long
    private static final int VERSION_AT = 8;
    private static final int HEADER_BYTES_AT = 12;
    private static final int NAMESPACE_AT = 16;
    private static final int PAYLOAD_BYTES_AT = 48;
    private static final int KEY_BYTES_AT = 56;
    private static final int RESERVED_AT = 60;
    private static final int PAYLOAD_CRC_AT = 64;
    private static final int HEADER_CRC_AT = 68;
    private static final int SEAL_KIND_AT = 72;
    private static final int SEAL_AT = 80;
    private static final int SEAL_BYTES = 32;
    private static final int FIXED_BYTES = SEAL_AT + SEAL_BYTES;
    private static final int NO_SEAL = 0;
    private static final int HMAC_SHA256 = 1;

    private static final long PIECE_BYTES = PieceReader.PIECE_BYTES;
    private static final MemorySegment ZEROS =
            Arena.global().allocate(AlignedStaging.ALIGNMENT, AlignedStaging.ALIGNMENT);

    private final CRC32C crc = new CRC32C();
    private final PayloadScatter scatter = new PayloadScatter();
    private final KeyDigest namespace;
    private final FleetKey key;

    /// Null where there is no key, and after a seal that failed, for example for lack of memory: it
    /// still has bytes of that block then, and its reset may do nothing.
    private @Nullable Mac mac;

    private final byte[] statedSeal = new byte[SEAL_BYTES];

    /// @param namespace digest of the namespace and the key, which every block carries
    public RecordFormat(KeyDigest namespace, FleetKey key) {
        this.namespace = namespace;
        this.key = key;
        this.mac = key.newMac();
    }

    /// Whether blocks carry an HMAC, for which the whole block must be in staging.
    public boolean seals() {
        return key.present();
    }

    /// Bytes of all segments together.
    public static long payloadBytes(List<MemorySegment> segments) {
        long sum = 0;
        for (int i = 0; i < segments.size(); i++) {
            sum = Math.addExact(sum, segments.get(i).byteSize());
        }
        return sum;
    }

    static long headerBytes(BlockKey key) {
        return AlignedStaging.align(FIXED_BYTES + key.utf8().byteSize());
    }

    /// Bytes of the file that holds such a payload under this key.
    public static long fileBytes(BlockKey key, long payloadBytes) {
        return headerBytes(key) + AlignedStaging.align(payloadBytes);
    }

    /// Gathers header and payload into `staging`; answers the bytes to write.
    public long encode(BlockKey key, List<MemorySegment> segments, AlignedStaging staging) {
        long headerBytes = headerBytes(key);
        long payloadBytes = payloadBytes(segments);
        long end = fileBytes(key, payloadBytes);
        staging.ensure(end);
        MemorySegment out = staging.memory();
        long at = headerBytes;
        long checked = at;
        crc.reset();
        for (int i = 0; i < segments.size(); i++) {
            MemorySegment segment = segments.get(i);
            for (long from = 0; from < segment.byteSize(); ) {
                long bytes = Math.min(PIECE_BYTES, segment.byteSize() - from);
                MemorySegment.copy(segment, from, out, at, bytes);
                from += bytes;
                at += bytes;
                if (at - checked >= PIECE_BYTES) {
                    crc.update(staging.view(checked, at));
                    checked = at;
                }
            }
        }
        crc.update(staging.view(checked, at));
        zero(out, at, end);
        encodeHeader(key, payloadBytes, (int) crc.getValue(), staging);
        return end;
    }

    /// Puts the header alone, with its padding, at the start of `staging`, which must have room for
    /// it.
    void encodeHeader(BlockKey key, long payloadBytes, int payloadCrc, AlignedStaging staging) {
        MemorySegment out = staging.memory();
        long headerBytes = headerBytes(key);
        long keyBytes = key.utf8().byteSize();
        long used = FIXED_BYTES + keyBytes;
        MemorySegment.copy(key.utf8(), 0, out, FIXED_BYTES, keyBytes);
        zero(out, used, headerBytes);
        out.set(LONG, 0, MAGIC);
        out.set(INT, VERSION_AT, VERSION);
        out.set(INT, HEADER_BYTES_AT, (int) headerBytes);
        out.set(DIGEST_WORD, NAMESPACE_AT, namespace.a());
        out.set(DIGEST_WORD, NAMESPACE_AT + 8, namespace.b());
        out.set(DIGEST_WORD, NAMESPACE_AT + 16, namespace.c());
        out.set(DIGEST_WORD, NAMESPACE_AT + 24, namespace.d());
        out.set(LONG, PAYLOAD_BYTES_AT, payloadBytes);
        out.set(INT, KEY_BYTES_AT, (int) keyBytes);
        out.set(INT, RESERVED_AT, 0);
        out.set(INT, PAYLOAD_CRC_AT, payloadCrc);
        out.set(INT, SEAL_KIND_AT, seals() ? HMAC_SHA256 : NO_SEAL);
        out.set(INT, SEAL_KIND_AT + Integer.BYTES, 0);
        zero(out, SEAL_AT, FIXED_BYTES);
        if (seals()) {
            byte[] seal = seal(staging, used, headerBytes, payloadBytes);
            MemorySegment.copy(seal, 0, out, ValueLayout.JAVA_BYTE, SEAL_AT, SEAL_BYTES);
        }
        out.set(INT, HEADER_CRC_AT, headerCrc(staging, used));
    }

    /// Checks the `got` bytes read into `staging` against the request and copies the payload to
    /// `segments`. A large unsealed block is checked and copied in pieces that stay in the CPU
    /// cache, so if its checksum is wrong the segments have already been written to. A sealed block
    /// is verified first.
    ///
    /// @return [BlockResult.Done#LOADED] or a failure
    public BlockResult decode(
            AlignedStaging staging, long got, BlockKey key, List<MemorySegment> segments) {
        BlockResult verdict = checkHeader(staging, got, key, payloadBytes(segments));
        if (verdict != BlockResult.Done.LOADED) {
            return verdict;
        }
        MemorySegment in = staging.memory();
        long payloadBytes = in.get(LONG, PAYLOAD_BYTES_AT);
        long used = used(in);
        long headerBytes = AlignedStaging.align(used);
        if (got < headerBytes + AlignedStaging.align(payloadBytes)) {
            return corrupt("is cut at " + got + " bytes");
        }
        if (seals() && !sealed(staging, used, headerBytes, payloadBytes)) {
            // A wrong checksum means damage, not forgery.
            verdict =
                    checkPayload(
                            statedCrc(staging), payloadCrc(staging, headerBytes, payloadBytes));
            return verdict != BlockResult.Done.LOADED
                    ? verdict
                    : corrupt("was not written by a process that has the key");
        }
        long end = headerBytes + payloadBytes;
        crc.reset();
        scatter.reset();
        long next;
        for (long at = headerBytes; at < end; at = next) {
            next = Math.min(end, at + PIECE_BYTES);
            crc.update(staging.view(at, next));
            if (next == end) { // checked before the last piece is copied
                verdict = checkPayload(statedCrc(staging), (int) crc.getValue());
            }
            if (verdict == BlockResult.Done.LOADED) {
                scatter.next(in, at, next - at, segments);
            }
        }
        return payloadBytes == 0 ? checkPayload(statedCrc(staging), (int) crc.getValue()) : verdict;
    }

    /// Bytes of the header without its padding.
    private static long used(MemorySegment in) {
        return FIXED_BYTES + Integer.toUnsignedLong(in.get(INT, KEY_BYTES_AT));
    }

    /// The payload's checksum as the header in `staging` has it.
    static int statedCrc(AlignedStaging staging) {
        return staging.memory().get(INT, PAYLOAD_CRC_AT);
    }

    /// [#decode] of a payload, behind a header that was checked.
    ///
    /// @param stated its checksum in the header
    /// @param found its checksum as it was read
    static BlockResult checkPayload(int stated, int found) {
        return stated == found
                ? BlockResult.Done.LOADED
                : corrupt("has a payload that does not match its checksum");
    }

    /// [#decode] of the header alone.
    BlockResult checkHeader(AlignedStaging staging, long got, BlockKey key, long payloadBytes) {
        MemorySegment in = staging.memory();
        if (got < FIXED_BYTES || in.get(LONG, 0) != MAGIC) {
            return corrupt("has no block header");
        }
        long keyBytes = Integer.toUnsignedLong(in.get(INT, KEY_BYTES_AT));
        long used = used(in);
        if (keyBytes > BlockKey.MAX_BYTES
                || used > got
                || in.get(INT, HEADER_BYTES_AT) != AlignedStaging.align(used)
                || in.get(INT, HEADER_CRC_AT) != headerCrc(staging, used)) {
            return corrupt("has a damaged or cut header");
        }
        if (in.get(INT, VERSION_AT) != VERSION) {
            return corrupt("has format version " + in.get(INT, VERSION_AT));
        }
        if (!sameNamespace(in)
                || MemorySegment.mismatch(
                                in, FIXED_BYTES, used, key.utf8(), 0, key.utf8().byteSize())
                        >= 0) {
            return corrupt("holds another key or namespace");
        }
        long found = in.get(LONG, PAYLOAD_BYTES_AT);
        if (found != payloadBytes) {
            return BlockResult.Failed.of(
                    ErrorCode.INCOMPATIBLE,
                    "block file holds " + found + " bytes, asked for " + payloadBytes);
        }
        return BlockResult.Done.LOADED;
    }

    private boolean sealed(AlignedStaging staging, long used, long headerBytes, long payloadBytes) {
        MemorySegment in = staging.memory();
        MemorySegment.copy(in, ValueLayout.JAVA_BYTE, SEAL_AT, statedSeal, 0, SEAL_BYTES);
        return in.get(INT, SEAL_KIND_AT) == HMAC_SHA256
                && MessageDigest.isEqual(
                        seal(staging, used, headerBytes, payloadBytes), statedSeal);
    }

    private byte[] seal(AlignedStaging staging, long used, long headerBytes, long payloadBytes) {
        Mac current = Objects.requireNonNull(mac == null ? key.newMac() : mac);
        mac = null; // until this seal is done
        current.update(staging.view(0, PAYLOAD_CRC_AT));
        current.update(staging.view(SEAL_KIND_AT, SEAL_AT));
        current.update(staging.view(FIXED_BYTES, used));
        current.update(staging.view(headerBytes, headerBytes + payloadBytes));
        byte[] seal = current.doFinal();
        mac = current;
        return seal;
    }

    private boolean sameNamespace(MemorySegment in) {
        return in.get(DIGEST_WORD, NAMESPACE_AT) == namespace.a()
                && in.get(DIGEST_WORD, NAMESPACE_AT + 8) == namespace.b()
                && in.get(DIGEST_WORD, NAMESPACE_AT + 16) == namespace.c()
                && in.get(DIGEST_WORD, NAMESPACE_AT + 24) == namespace.d();
    }

    private int headerCrc(AlignedStaging staging, long used) {
        crc.reset();
        crc.update(staging.view(0, HEADER_CRC_AT));
        crc.update(staging.view(SEAL_KIND_AT, used));
        return (int) crc.getValue();
    }

    private int payloadCrc(AlignedStaging staging, long from, long bytes) {
        crc.reset();
        crc.update(staging.view(from, from + bytes));
        return (int) crc.getValue();
    }

    /// A copy, because a loop takes milliseconds until it is compiled and filling a slice makes
    /// garbage until then; never more than one page.
    private static void zero(MemorySegment memory, long from, long to) {
        MemorySegment.copy(ZEROS, 0, memory, from, to - from);
    }

    static BlockResult corrupt(String what) {
        return BlockResult.Failed.of(ErrorCode.CORRUPT, "block file " + what);
    }
}
