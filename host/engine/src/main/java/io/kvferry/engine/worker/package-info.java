// SPDX-License-Identifier: Apache-2.0
/// The step protocol between the scheduler and the ranks: what the scheduler asks of a
/// [io.kvferry.engine.worker.WorkerGroup], and what it hears back. `rank` is what runs on a rank,
/// `process` brings it into other processes.
@NullMarked
package io.kvferry.engine.worker;

import org.jspecify.annotations.NullMarked;
