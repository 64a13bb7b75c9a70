// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import io.kvferry.backend.nccl.gpu.TensorLanes;
import io.kvferry.toolkit.zmtp.SideChannel;

import java.time.Duration;

/// What all links of one rank share.
///
/// @param address where this rank listens, `host:port`, which is also its identity
record VllmParts(
        TensorLanes lanes, TensorForm form, SideChannel channel, String address, Limits limits) {
    /// @param connect limit for a connection to be established
    /// @param answer limit for a request to be answered
    /// @param avoided how long puts to a peer are refused after a failure
    record Limits(Duration connect, Duration answer, Duration avoided) {}
}
