// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.tier;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.function.UnaryOperator;
import java.util.zip.CRC32C;

/// The `.meta` file of a bucket: `i32 magic | i32 version | i64 id | i64 bytes of the data file |
/// identities (tenant, model, layout) | objects (identity, key, group, hard pin, offset, size,
/// CRC32C) | CRC32C of all before`. Little-endian, as [WireWriter] does it.
final class BucketMeta {
    static final int MAGIC = 0x4b56_424d; // KVBM
    static final int VERSION = 1;
    private static final int LEAST_OBJECT_BYTES = 30;

    private BucketMeta() {}

    static byte[] encode(long id, long dataBytes, List<DiskObject> objects) {
        var identities = new LinkedHashMap<StoreIdentity, Integer>();
        for (DiskObject object : objects) {
            identities.putIfAbsent(object.identity(), identities.size());
        }
        var out = new WireWriter().i32(MAGIC).i32(VERSION).i64(id).i64(dataBytes);
        out.i32(identities.size());
        identities
                .keySet()
                .forEach(identity ->
                        out.string(identity.tenant())
                                .string(identity.model())
                                .string(identity.layout()));
        out.i32(objects.size());
        for (DiskObject object : objects) {
            String group = object.group();
            out.i32(identities.getOrDefault(object.identity(), 0))
                    .string(object.key())
                    .bool(group != null)
                    .string(group == null ? "" : group)
                    .bool(object.hardPinned())
                    .i64(object.offset())
                    .i64(object.size())
                    .i32(object.checksum());
        }
        byte[] body = out.toByteArray();
        return out.i32(checksum(body, body.length)).toByteArray();
    }

    /// Completes a bucket from its file.
    ///
    /// @param intern the one object that the store has for an identity
    /// @return bytes of the data file
    /// @throws KvFerryException [ErrorCode#CORRUPT] for a file that is torn or damaged,
    ///   [ErrorCode#INCOMPATIBLE] for a whole one of another version
    static long decode(
            Bucket bucket,
            byte[] file,
            UnaryOperator<StoreIdentity> intern,
            List<DiskObject> objects) {
        int end = file.length - Integer.BYTES;
        if (end < 2 * Integer.BYTES) {
            throw corrupt(bucket, "has " + file.length + " bytes");
        }
        var all = new WireReader(file);
        byte[] body = all.raw(end);
        if (all.i32() != checksum(file, end)) {
            throw corrupt(bucket, "has another checksum");
        }
        var in = new WireReader(body);
        if (in.i32() != MAGIC) {
            throw corrupt(bucket, "is not a meta file");
        }
        int version = in.i32();
        if (version != VERSION) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "bucket "
                            + bucket.id()
                            + " is of version "
                            + version
                            + ", this program knows "
                            + VERSION
                            + "; choose another folder, or delete its files");
        }
        try {
            return decode(bucket, in, intern, objects);
        } catch (KvFerryException e) {
            throw corrupt(bucket, "is not of the form it should have: " + e.code());
        }
    }

    private static long decode(
            Bucket bucket,
            WireReader in,
            UnaryOperator<StoreIdentity> intern,
            List<DiskObject> objects) {
        if (in.i64() != bucket.id()) {
            throw corrupt(bucket, "is that of another bucket");
        }
        long dataBytes = in.i64();
        int known = in.count(3 * Integer.BYTES);
        var identities = new ArrayList<StoreIdentity>(known);
        for (int i = 0; i < known; i++) {
            identities.add(intern.apply(new StoreIdentity(in.string(), in.string(), in.string())));
        }
        int count = in.count(LEAST_OBJECT_BYTES);
        for (int i = 0; i < count; i++) {
            int identity = in.i32();
            String key = in.string();
            boolean grouped = in.bool();
            String group = in.string();
            boolean hardPinned = in.bool();
            long offset = in.i64();
            long size = in.i64();
            int checksum = in.i32();
            if (identity < 0
                    || identity >= known
                    || offset < 0
                    || size <= 0
                    || offset > dataBytes - size) {
                throw corrupt(bucket, "names bytes that are not there");
            }
            objects.add(
                    new DiskObject(
                            bucket,
                            i,
                            identities.get(identity),
                            key,
                            grouped ? group : null,
                            hardPinned,
                            offset,
                            size,
                            checksum));
        }
        in.end();
        return dataBytes;
    }

    private static int checksum(byte[] bytes, int length) {
        var crc = new CRC32C();
        crc.update(bytes, 0, length);
        return (int) crc.getValue();
    }

    private static KvFerryException corrupt(Bucket bucket, String what) {
        return new KvFerryException(
                ErrorCode.CORRUPT, "the meta file of bucket " + bucket.id() + " " + what);
    }
}
