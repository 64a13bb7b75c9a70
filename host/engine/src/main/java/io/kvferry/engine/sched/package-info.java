// SPDX-License-Identifier: Apache-2.0
/// The scheduler: request states, admission, preemption, the life of transfers, and the step that
/// ties scheduler, connectors and workers together. Everything here runs on the scheduler thread,
/// except what says otherwise.
///
/// ```
/// submit -> WAITING -+-> RUNNING ------------> ended -+-> gone
///              ^     |      |  ^                      +-> held until the connector is done, then gone
///              |     |      v  |
///              |     |   PREEMPTED
///              |     +-> LOADING (waits for remote KV)
///              +------------+  (loaded, or to be recomputed)
/// ```
@NullMarked
package io.kvferry.engine.sched;

import org.jspecify.annotations.NullMarked;
