// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.tier;

import io.kvferry.backend.mooncake.store.StoreIdentity;

import org.jspecify.annotations.Nullable;

/// A copy of an object in a bucket.
///
/// Threading: immutable once its bucket is complete.
public final class DiskObject {
    private final StoreIdentity identity;
    private final String key;
    private final @Nullable String group;
    private final boolean hardPinned;
    private final long size;
    private final Bucket bucket;
    private final int index;
    private final long offset;
    private final int checksum;

    /// @param index within the bucket
    /// @param offset of the first byte of the value in the data file
    /// @param checksum CRC32C of the value
    DiskObject(
            Bucket bucket,
            int index,
            StoreIdentity identity,
            String key,
            @Nullable String group,
            boolean hardPinned,
            long offset,
            long size,
            int checksum) {
        this.bucket = bucket;
        this.index = index;
        this.identity = identity;
        this.key = key;
        this.group = group;
        this.hardPinned = hardPinned;
        this.offset = offset;
        this.size = size;
        this.checksum = checksum;
    }

    public StoreIdentity identity() {
        return identity;
    }

    public String key() {
        return key;
    }

    public @Nullable String group() {
        return group;
    }

    public boolean hardPinned() {
        return hardPinned;
    }

    /// Bytes of the value.
    public long size() {
        return size;
    }

    public long offset() {
        return offset;
    }

    public int checksum() {
        return checksum;
    }

    public Bucket bucket() {
        return bucket;
    }

    int index() {
        return index;
    }

    /// The same at another place of its bucket.
    DiskObject at(int place) {
        return place == index
                ? this
                : new DiskObject(
                        bucket, place, identity, key, group, hardPinned, offset, size, checksum);
    }
}
