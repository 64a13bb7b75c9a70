// SPDX-License-Identifier: Apache-2.0
/// What the engine counts and tells: metrics, trace events, cache events.
@NullMarked
package io.kvferry.engine.telemetry;

import org.jspecify.annotations.NullMarked;
