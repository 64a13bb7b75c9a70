// SPDX-License-Identifier: Apache-2.0
/// Observability of plugins: mergeable [Stats], and structured [TraceEvent]s for every decision
/// (which source, which transport, why not the others, what was promised, what was delivered).
/// Failing to observe never fails data.
@NullMarked
package io.kvferry.spi.observe;

import org.jspecify.annotations.NullMarked;
