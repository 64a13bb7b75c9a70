// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.transfer;

import io.kvferry.spi.Deadline;

import java.util.Objects;
import java.util.Optional;

/// One post: range `i` of `local` with range `i` of `remote`.
///
/// @param local this agent's side; prepared without a peer
/// @param remote the other side: prepared for a peer, or without one for a loopback transfer
///   (files, objects)
/// @param notification delivered once at the peer after the data; empty bytes are a notification
///   too
/// @param deadline after it the outcome is [TransferOutcome.TimedOut]
/// @param tag free text for logs and events, such as the request id
public record TransferRequest(
        Operation operation,
        Prepared local,
        Prepared remote,
        Optional<byte[]> notification,
        Deadline deadline,
        String tag) {
    public TransferRequest {
        Objects.requireNonNull(operation, "operation");
        Objects.requireNonNull(deadline, "deadline");
    }

    public TransferRequest(
            Operation operation, Prepared local, Prepared remote, Deadline deadline) {
        this(operation, local, remote, Optional.empty(), deadline, "");
    }
}
