// SPDX-License-Identifier: Apache-2.0
/// The scheduler: the states of requests ([io.kvferry.engine.sched.RequestLifecycle]), admission,
/// preemption, and the step that ties scheduler, connectors and workers together
/// ([io.kvferry.engine.sched.EngineStep]). Everything here runs on the scheduler thread, except
/// what says otherwise. `docs/request.md` follows one request through it.
@NullMarked
package io.kvferry.engine.sched;

import org.jspecify.annotations.NullMarked;
