// SPDX-License-Identifier: Apache-2.0
/// The Mooncake backend in turns with a C program and Mooncake's own benchmark, beside iperf3 and
/// UCX.
@NullMarked
package io.kvferry.benchmarks.mooncake;

import org.jspecify.annotations.NullMarked;
