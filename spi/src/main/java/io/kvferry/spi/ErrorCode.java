// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi;

import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import java.util.function.Function;
import java.util.stream.Collectors;

/// Causes of failures, in a form that crosses processes.
///
/// [#wire] numbers are explicit and never reused; their high half tells the [Category]. A code is
/// the same whether it is thrown in a [KvFerryException] or travels in a [Failure] inside an
/// outcome.
public enum ErrorCode {
    /// The caller broke the contract: wrong argument, wrong order, wrong thread.
    INVALID_REQUEST(0x0001, Category.USAGE, false),
    /// The plugin does not claim this operation in its capabilities.
    UNSUPPORTED(0x0002, Category.USAGE, false),
    /// The named thing (peer, region, transfer, plugin) is not known here.
    NOT_FOUND(0x0003, Category.USAGE, false),
    /// The object was closed before the call.
    CLOSED(0x0004, Category.USAGE, false),
    /// Posted again while the previous post is still in flight.
    ALREADY_ACTIVE(0x0005, Category.USAGE, false),

    /// A setting is unknown, malformed or out of range.
    BAD_CONFIG(0x1_0001, Category.CONFIG, false),
    /// No provider of that name, or two of them.
    PLUGIN_CONFLICT(0x1_0002, Category.CONFIG, false),
    /// The platform lacks what the plugin needs (library, device, file system feature).
    UNAVAILABLE(0x1_0003, Category.CONFIG, false),

    /// The peer is gone: connection refused, reset, or its process ended.
    PEER_LOST(0x2_0001, Category.PEER, true),
    /// The peer answered, and refused.
    PEER_REFUSED(0x2_0002, Category.PEER, false),
    /// The handle belongs to an earlier incarnation of the peer, or the peer started anew.
    STALE_INCARNATION(0x2_0003, Category.PEER, true),
    /// The peer's hold ended before the data was fetched; the blocks may hold something else by
    /// now.
    LEASE_EXPIRED(0x2_0004, Category.PEER, false),

    /// The deadline passed.
    TIMEOUT(0x3_0001, Category.TRANSPORT, true),
    /// Reading or writing the wire failed for a reason other than a lost peer.
    IO(0x3_0002, Category.TRANSPORT, true),
    /// Bytes on the wire do not follow the protocol.
    PROTOCOL(0x3_0003, Category.TRANSPORT, false),
    /// Cancelled on request.
    CANCELLED(0x3_0004, Category.TRANSPORT, false),

    /// The medium failed: read or write error of a file or object.
    STORAGE_IO(0x4_0001, Category.STORAGE, true),
    /// The store has no such entry, or no longer.
    MISS(0x4_0002, Category.STORAGE, false),
    /// No space left within quota or on the medium.
    NO_SPACE(0x4_0003, Category.STORAGE, true),

    /// A bounded queue is full; nothing was started. Try again later.
    BACKPRESSURE(0x5_0001, Category.RESOURCE, true),
    /// Memory (host, device, pinned, registered) ran out.
    NO_MEMORY(0x5_0002, Category.RESOURCE, true),

    /// Checksum or structure of data at rest or in flight is wrong.
    CORRUPT(0x6_0001, Category.CORRUPT, false),

    /// Peers, files or plugins of versions, layouts or models that do not fit together.
    INCOMPATIBLE(0x7_0001, Category.INCOMPATIBLE, false),

    /// A defect in kvferry or in a plugin.
    INTERNAL(0x8_0001, Category.INTERNAL, false);

    /// The side that can resolve it.
    public enum Category {
        USAGE,
        CONFIG,
        PEER,
        TRANSPORT,
        STORAGE,
        RESOURCE,
        CORRUPT,
        INCOMPATIBLE,
        INTERNAL
    }

    private static final Map<Integer, ErrorCode> BY_WIRE =
            Arrays.stream(values())
                    .collect(Collectors.toUnmodifiableMap(ErrorCode::wire, Function.identity()));

    private final int wire;
    private final Category category;
    private final boolean retryable;

    ErrorCode(int wire, Category category, boolean retryable) {
        this.wire = wire;
        this.category = category;
        this.retryable = retryable;
    }

    /// The number that stands for this code in every format of kvferry.
    public int wire() {
        return wire;
    }

    public Category category() {
        return category;
    }

    /// Whether the same call may succeed later without a change by the caller.
    public boolean retryable() {
        return retryable;
    }

    /// The code behind a number read from a wire; empty for one that a newer version introduced.
    public static Optional<ErrorCode> ofWire(int wire) {
        return Optional.ofNullable(BY_WIRE.get(wire));
    }
}
