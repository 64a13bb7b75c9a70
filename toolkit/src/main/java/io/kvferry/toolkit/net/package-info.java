// SPDX-License-Identifier: Apache-2.0
/// Listening sockets that recover from failures, an HTTP server with limits, and cancellable
/// lookups, connects and requests ([io.kvferry.toolkit.net.Cancellation]). Also options,
/// descriptors and system calls of sockets that carry blocks.
@NullMarked
package io.kvferry.toolkit.net;

import org.jspecify.annotations.NullMarked;
