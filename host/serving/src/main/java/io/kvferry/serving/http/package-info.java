// SPDX-License-Identifier: Apache-2.0
/// HTTP on Netty and virtual threads: a server with exact paths and limits on slow clients, and the
/// OpenAI-compatible API over an engine.
@NullMarked
package io.kvferry.serving.http;

import org.jspecify.annotations.NullMarked;
