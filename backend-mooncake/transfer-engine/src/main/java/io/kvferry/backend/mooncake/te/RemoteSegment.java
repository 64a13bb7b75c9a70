// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import java.util.List;

/// A peer's segment as the peer described it.
///
/// @param name by which it was opened
/// @param incarnation id of this start of the peer; empty unless it is a kvferry peer
/// @param protocol the peer's transport, `tcp` or `rdma`
/// @param protocolVersion of Mooncake's TCP data protocol, 1 or 2; completions from 1 are
///   [Guarantee#SENT] at best
/// @param sameHost whether its shared memory can be mapped
/// @param buffers registered at the time of the request; informational, later registrations count
///   as well
public record RemoteSegment(
        String name,
        String incarnation,
        String protocol,
        int protocolVersion,
        boolean sameHost,
        List<Buffer> buffers) {
    public RemoteSegment {
        buffers = List.copyOf(buffers);
    }

    /// @param address absolute virtual address in the peer, unsigned
    public record Buffer(long address, long bytes) {}
}
