// SPDX-License-Identifier: Apache-2.0
/// The scheduler: the states of requests ([io.kvferry.engine.sched.RequestLifecycle]), admission,
/// preemption, loads and holds, and what follows from a step's results.
/// [io.kvferry.engine.sched.Scheduler] puts them together; `core` runs its plans on the workers.
/// Everything here runs on the scheduler thread, except what says otherwise. `docs/request.md`
/// follows one request through it.
@NullMarked
package io.kvferry.engine.sched;

import org.jspecify.annotations.NullMarked;
