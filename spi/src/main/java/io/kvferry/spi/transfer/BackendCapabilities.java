// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.transfer;

import io.kvferry.spi.memory.MemoryKind;

import java.util.Set;

/// Capabilities of a backend, as data. The agent chooses by them, the TCK checks each of them.
///
/// @param maxDescriptors most descriptors in one transfer
/// @param maxBytes most bytes in one transfer
/// @param alignment every local address, remote address and length must be a multiple of it; 1 for
///   none
public record BackendCapabilities(
        Set<Route> routes,
        Set<Feature> features,
        Threading threading,
        int maxDescriptors,
        long maxBytes,
        int alignment) {
    /// Optional behaviours. What is not claimed must be refused with UNSUPPORTED before anything is
    /// posted.
    public enum Feature {
        /// A transfer may carry a notification, and [TransferBackend#notify] sends one alone.
        NOTIFY,
        /// [Transfer#cancel] stops a transfer; without it, cancel answers false and the transfer
        /// goes on.
        CANCEL,
        /// A failed transfer says of each descriptor whether it moved; without it, of none.
        PER_DESCRIPTOR_RESULTS,
        /// DONE means that the bytes are applied at the target, not merely handed to the network.
        APPLIED_ON_COMPLETION,
        /// A payload checksum is verified end to end; damage is a failed transfer (CORRUPT).
        CHECKSUM,
        /// The target's [TransferBackend#poll] must run for a transfer to proceed; of a CONFINED
        /// backend only. Without it, a target that nobody polls is read and written all the same.
        NEEDS_TARGET_PROGRESS,
        /// The backend exchanges metadata by itself: [TransferBackend#localMetadata] is only an
        /// address, and regions registered after the exchange are reachable without another one.
        SELF_MANAGED_METADATA,
        /// Answers [TransferBackend#query].
        QUERY
    }

    /// The threads that drive the backend.
    public enum Threading {
        /// Every method from one owner thread, [TransferBackend#poll] included; the agent supplies
        /// the loop.
        CONFINED,
        /// Any method from any thread; the backend makes progress by itself, [TransferBackend#poll]
        /// does nothing.
        CONCURRENT
    }

    public BackendCapabilities {
        routes = Set.copyOf(routes);
        features = Set.copyOf(features);
        if (routes.isEmpty()
                || maxDescriptors < 1
                || maxBytes < 1
                || Integer.bitCount(alignment) != 1) {
            throw new IllegalArgumentException(
                    "capabilities: routes "
                            + routes.size()
                            + ", maxDescriptors "
                            + maxDescriptors
                            + ", maxBytes "
                            + maxBytes
                            + ", alignment "
                            + alignment);
        }
    }

    public boolean has(Feature feature) {
        return features.contains(feature);
    }

    /// One thing a backend can do: an operation between two kinds of memory, within one agent or
    /// between two.
    public record Route(Operation operation, MemoryKind local, MemoryKind remote, Scope scope) {
        /// Where the "remote" side of a transfer lives.
        public enum Scope {
            /// In the same agent: a file, an object, or memory of its own.
            LOOPBACK,
            /// In another agent.
            REMOTE
        }
    }
}
