// SPDX-License-Identifier: Apache-2.0
/// [Jlama](https://github.com/tjake/Jlama) 0.8.4 as a model runner: an engine that kvferry does not
/// own, whose KV cache cannot be addressed.
///
/// Blocks are copied between the engine's regions and Jlama's `KvBuffer` before and after each
/// step, through its public API. Jlama needs `--add-modules jdk.incubator.vector`;
/// [JlamaRunnerProvider] touches none of its classes, so that a JVM without that flag is told what
/// to do. [JlamaFolder] refuses the folders that Jlama would read and compute wrongly.
@NullMarked
package io.kvferry.runner.jlama;

import org.jspecify.annotations.NullMarked;
