// SPDX-License-Identifier: Apache-2.0
/// Queues, memories and budgets that never grow beyond their bound, and waits.
@NullMarked
package io.kvferry.toolkit.bounded;

import org.jspecify.annotations.NullMarked;
