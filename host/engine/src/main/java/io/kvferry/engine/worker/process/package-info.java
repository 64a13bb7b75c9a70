// SPDX-License-Identifier: Apache-2.0
/// Ranks in worker processes: how they are started and ended, and the frames in which plans,
/// results and events travel.
@NullMarked
package io.kvferry.engine.worker.process;

import org.jspecify.annotations.NullMarked;
