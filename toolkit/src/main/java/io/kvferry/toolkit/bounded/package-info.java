// SPDX-License-Identifier: Apache-2.0
/// Queues, memories and budgets that never grow beyond their bound, waits, and what loops that must
/// go on say of failures.
@NullMarked
package io.kvferry.toolkit.bounded;

import org.jspecify.annotations.NullMarked;
