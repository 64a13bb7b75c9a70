// SPDX-License-Identifier: Apache-2.0
/// The engine that a JVM inference engine embeds. [Engine#open] takes an [EngineConfig] (a model
/// runner, a connector, sizes, limits); [Engine#submit] takes requests from any thread and streams
/// tokens back.
///
/// Inside: block pool and prefix cache, the scheduler, the step protocol with worker ranks in this
/// process or in child processes, the contract of model runners ([io.kvferry.engine.model]).
@NullMarked
package io.kvferry.engine;

import org.jspecify.annotations.NullMarked;
