// SPDX-License-Identifier: Apache-2.0
/// The embedded store: bandwidth beside a memory copy, costs per key, replay of a trace.
@NullMarked
package io.kvferry.benchmarks.store;

import org.jspecify.annotations.NullMarked;
