// SPDX-License-Identifier: Apache-2.0
/// The Mooncake backend beside plain sockets, memory copies, iperf3, UCX and Mooncake's own
/// benchmark.
@NullMarked
package io.kvferry.benchmarks.mooncake;

import org.jspecify.annotations.NullMarked;
