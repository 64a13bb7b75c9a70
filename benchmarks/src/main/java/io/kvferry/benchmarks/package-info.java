// SPDX-License-Identifier: Apache-2.0
/// Benchmarks. Each is a [Benchmark] that runs the limit or peer beside kvferry in the same run and
/// prints the ratio in a [Table]; [Main] lists and runs them, and passes `jmh ...` on to JMH. One
/// sub-package per measured module.
@NullMarked
package io.kvferry.benchmarks;

import org.jspecify.annotations.NullMarked;
