// SPDX-License-Identifier: Apache-2.0
/// Bounded queues, memory and byte budgets, waits that ignore interrupts, and logging for loops
/// that must survive failures.
@NullMarked
package io.kvferry.toolkit.bounded;

import org.jspecify.annotations.NullMarked;
