// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store;

/// Where a replica of an object is.
///
/// @param tier kind of storage
/// @param segment name of the segment that it is in
/// @param segmentId tells segments of one name apart, and the mounts of one segment
/// @param offset of its first byte within the segment
/// @param length bytes of the object
/// @param checksum CRC32C of the bytes; 0 where the store keeps none
/// @param leaseNanos how long it stays there at least, from the call that answered it. Who reads it
///   for longer has no right to the bytes any more and must discard them
public record ReplicaDescriptor(
        Tier tier,
        String segment,
        long segmentId,
        long offset,
        long length,
        int checksum,
        long leaseNanos) {
    /// Mooncake's kinds of replica that a requester can tell apart.
    public enum Tier {
        MEMORY,
        LOCAL_DISK,
        DISK
    }

    public boolean isMemoryReplica() {
        return tier == Tier.MEMORY;
    }

    public boolean isLocalDiskReplica() {
        return tier == Tier.LOCAL_DISK;
    }

    public boolean isDiskReplica() {
        return tier == Tier.DISK;
    }
}
