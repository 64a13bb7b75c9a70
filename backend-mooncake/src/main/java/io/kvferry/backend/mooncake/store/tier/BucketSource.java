// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.tier;

import io.kvferry.backend.mooncake.store.StoreIdentity;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;

/// An object that is written to disk, and where its bytes are; these do not change until the write
/// has ended.
///
/// @param checked whether its checksum is known
/// @param checksum CRC32C that the bytes have to have, where it is known
public record BucketSource(
        StoreIdentity identity,
        String key,
        @Nullable String group,
        boolean hardPinned,
        MemorySegment memory,
        boolean checked,
        int checksum) {}
