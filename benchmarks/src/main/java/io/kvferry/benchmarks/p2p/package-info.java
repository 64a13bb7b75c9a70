// SPDX-License-Identifier: Apache-2.0
/// P2pNcclConnector: its host data plane beside plain sockets and iperf3, messages by the tensor
/// beside messages by the transfer, and a serving report beside the other connectors.
@NullMarked
package io.kvferry.benchmarks.p2p;

import org.jspecify.annotations.NullMarked;
