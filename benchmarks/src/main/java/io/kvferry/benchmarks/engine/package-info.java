// SPDX-License-Identifier: Apache-2.0
/// The engine's scheduler and step protocol: what a step and a lookup cost.
@NullMarked
package io.kvferry.benchmarks.engine;

import org.jspecify.annotations.NullMarked;
