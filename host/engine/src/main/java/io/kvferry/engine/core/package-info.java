// SPDX-License-Identifier: Apache-2.0
/// The scheduler thread: its loop, one step after the other over scheduler and workers, and the
/// recovery of workers and connectors that are lost.
@NullMarked
package io.kvferry.engine.core;

import org.jspecify.annotations.NullMarked;
