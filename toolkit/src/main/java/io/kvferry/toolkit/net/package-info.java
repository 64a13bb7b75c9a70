// SPDX-License-Identifier: Apache-2.0
/// Listening sockets that survive what happens to them, and an HTTP server with limits.
@NullMarked
package io.kvferry.toolkit.net;

import org.jspecify.annotations.NullMarked;
