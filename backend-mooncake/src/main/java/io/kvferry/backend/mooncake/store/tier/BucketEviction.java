// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.tier;

/// Which bucket is deleted when the disk tier is full; the words of Mooncake's owner.
public enum BucketEviction {
    /// None: a full tier takes nothing more.
    NONE,
    /// The one that was written first.
    FIFO,
    /// The one whose objects were not read for the longest time.
    LRU
}
