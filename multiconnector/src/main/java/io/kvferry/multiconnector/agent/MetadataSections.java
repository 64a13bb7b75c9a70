// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.Arrays;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.zip.CRC32C;

/// The metadata of an agent on the wire: one opaque section per backend.
///
/// Form: magic `KVFM`, version, sections by name, then a CRC32C over all of it. A blob is accepted
/// whole or refused whole.
final class MetadataSections {
    /// Largest blob that [#decode] looks at.
    static final int MAX_BYTES = 64 << 20;

    private static final int MAGIC = 0x4d46_564b; // "KVFM" in memory
    private static final int VERSION = 1;

    private MetadataSections() {}

    static byte[] encode(SortedMap<String, byte[]> sections) {
        var out = new WireWriter();
        out.i32(MAGIC).i32(VERSION).i32(sections.size());
        sections.forEach((backend, section) -> out.string(backend).bytes(section));
        var crc = new CRC32C();
        crc.update(out.toByteArray());
        return out.i32((int) crc.getValue()).toByteArray();
    }

    /// @throws KvFerryException [ErrorCode#CORRUPT] when the bytes are damaged or no metadata at
    ///   all, [ErrorCode#INCOMPATIBLE] when they are of another version
    static SortedMap<String, byte[]> decode(byte[] blob) {
        if (blob.length < 12 || blob.length > MAX_BYTES) {
            throw new KvFerryException(
                    ErrorCode.CORRUPT, "peer metadata of " + blob.length + " bytes");
        }
        var in = new WireReader(blob);
        if (in.i32() != MAGIC) {
            throw new KvFerryException(ErrorCode.CORRUPT, "not peer metadata: wrong magic");
        }
        var crc = new CRC32C();
        crc.update(blob, 0, blob.length - 4);
        var tail = new WireReader(Arrays.copyOfRange(blob, blob.length - 4, blob.length));
        if (tail.i32() != (int) crc.getValue()) {
            throw new KvFerryException(ErrorCode.CORRUPT, "peer metadata fails its checksum");
        }
        int version = in.i32();
        if (version != VERSION) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "peer metadata version " + version + ", this side reads " + VERSION);
        }
        try {
            return body(in);
        } catch (KvFerryException | IllegalArgumentException e) {
            throw new KvFerryException(ErrorCode.CORRUPT, "peer metadata: " + e.getMessage(), e);
        }
    }

    private static SortedMap<String, byte[]> body(WireReader in) {
        int count = in.count(8);
        var sections = new TreeMap<String, byte[]>();
        for (int i = 0; i < count; i++) {
            var backend = in.string();
            if (sections.put(backend, in.bytes()) != null) {
                throw new IllegalArgumentException("two sections of backend " + backend);
            }
        }
        in.i32(); // the checksum
        in.end();
        return sections;
    }
}
