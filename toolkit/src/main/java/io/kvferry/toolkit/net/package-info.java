// SPDX-License-Identifier: Apache-2.0
/// Listening sockets that survive what happens to them, an HTTP server with limits, and look-ups,
/// connections and questions that end when nobody wants them any more
/// ([io.kvferry.toolkit.net.Cancellation]). Of sockets that carry blocks the options, the
/// descriptors and the system calls.
@NullMarked
package io.kvferry.toolkit.net;

import org.jspecify.annotations.NullMarked;
