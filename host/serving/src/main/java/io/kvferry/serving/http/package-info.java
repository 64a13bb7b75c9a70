// SPDX-License-Identifier: Apache-2.0
/// HTTP on the JDK's server and virtual threads: a small service frame, the OpenAI-compatible API
/// over an engine, and the Prometheus text format.
@NullMarked
package io.kvferry.serving.http;

import org.jspecify.annotations.NullMarked;
