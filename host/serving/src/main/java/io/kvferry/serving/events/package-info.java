// SPDX-License-Identifier: Apache-2.0
/// vLLM's KV events: an engine publishes which blocks its prefix cache has, over ZeroMQ in msgpack,
/// and a router follows. Either side may be vLLM's, or any other that speaks its format.
@NullMarked
package io.kvferry.serving.events;

import org.jspecify.annotations.NullMarked;
