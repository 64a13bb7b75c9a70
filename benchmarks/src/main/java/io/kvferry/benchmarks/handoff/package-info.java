// SPDX-License-Identifier: Apache-2.0
/// A prompt's KV cache handed from a prefill engine to a decode engine, each in a JVM of its own.
@NullMarked
package io.kvferry.benchmarks.handoff;

import org.jspecify.annotations.NullMarked;
