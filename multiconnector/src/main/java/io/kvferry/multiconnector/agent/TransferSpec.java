// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.transfer.Operation;

import java.util.Objects;
import java.util.Optional;
import java.util.Set;

/// One transfer for the agent to do: range `i` of `local` with range `i` of `remote`.
///
/// @param notification delivered at the peer after the data, once, however many backends were
///   tried; empty bytes are a notification too
/// @param tag free text for logs and events, such as the request id
/// @param require only these backends may be used; empty for any
/// @param never these may not, whatever the cost: no silent fall-back below a limit that the caller
///   sets
public record TransferSpec(
        Operation operation,
        PreparedList local,
        PreparedList remote,
        Optional<byte[]> notification,
        Deadline deadline,
        String tag,
        Set<String> require,
        Set<String> never) {
    public TransferSpec {
        Objects.requireNonNull(operation, "operation");
        Objects.requireNonNull(deadline, "deadline");
        require = Set.copyOf(require);
        never = Set.copyOf(never);
    }

    /// A transfer by any backend, without notification.
    public TransferSpec(
            Operation operation, PreparedList local, PreparedList remote, Deadline deadline) {
        this(operation, local, remote, Optional.empty(), deadline, "", Set.of(), Set.of());
    }

    /// The same transfer with a notification.
    public TransferSpec notifying(byte[] bytes) {
        return new TransferSpec(
                operation, local, remote, Optional.of(bytes), deadline, tag, require, never);
    }

    /// The same transfer by these backends only.
    public TransferSpec requiring(String... backends) {
        return new TransferSpec(
                operation, local, remote, notification, deadline, tag, Set.of(backends), never);
    }

    /// The same transfer, not by these backends.
    public TransferSpec excluding(String... backends) {
        return new TransferSpec(
                operation, local, remote, notification, deadline, tag, require, Set.of(backends));
    }
}
