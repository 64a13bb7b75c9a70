// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import io.kvferry.spi.Deadline;

import java.util.Objects;
import java.util.Optional;

/// One batch of one-sided copies to or from one peer.
///
/// Ranges of a batch are independent: any order, and part of them may be done when the batch fails.
///
/// @param operation READ copies remote to local, WRITE local to remote
/// @param segmentName the peer, as in [TransferEngine#open]
/// @param ranges to copy; each local end lies in one registered region
/// @param deadline when to give up
/// @param expectedIncarnation the incarnation the remote addresses belong to; empty: whichever runs
///   now. A kvferry peer that started anew refuses with `STALE_INCARNATION`; other peers have none
///   to compare
/// @param capability [WriteGrant#token] given by the peer, 0 for none; only kvferry peers know it
/// @param memoryKey [TransferEngine#memoryKey] of the peer, 0 for none; names nothing beside a
///   capability
/// @param notification sent after the data has been applied, and only if all of it was
public record EngineRequest(
        Operation operation,
        String segmentName,
        Ranges ranges,
        Deadline deadline,
        String expectedIncarnation,
        long capability,
        long memoryKey,
        Optional<Notification> notification) {
    public EngineRequest {
        Objects.requireNonNull(operation, "operation");
        Objects.requireNonNull(segmentName, "segmentName");
        Objects.requireNonNull(ranges, "ranges");
        Objects.requireNonNull(deadline, "deadline");
        Objects.requireNonNull(expectedIncarnation, "expectedIncarnation");
        Objects.requireNonNull(notification, "notification");
    }

    public static EngineRequest write(String segmentName, Ranges ranges, Deadline deadline) {
        return new EngineRequest(
                Operation.WRITE, segmentName, ranges, deadline, "", 0, 0, Optional.empty());
    }

    public static EngineRequest read(String segmentName, Ranges ranges, Deadline deadline) {
        return new EngineRequest(
                Operation.READ, segmentName, ranges, deadline, "", 0, 0, Optional.empty());
    }

    public EngineRequest withCapability(long token) {
        return new EngineRequest(
                operation,
                segmentName,
                ranges,
                deadline,
                expectedIncarnation,
                token,
                memoryKey,
                notification);
    }

    public EngineRequest withIncarnation(String incarnation) {
        return new EngineRequest(
                operation,
                segmentName,
                ranges,
                deadline,
                incarnation,
                capability,
                memoryKey,
                notification);
    }

    /// Direction, seen from the caller.
    public enum Operation {
        READ,
        WRITE
    }
}
