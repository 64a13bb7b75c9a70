// SPDX-License-Identifier: Apache-2.0
/// The contracts of kvferry. A plugin is a [Plugin] of one of three kinds, each with a package of
/// its own whose description shows the whole life cycle:
///
/// - [io.kvferry.spi.transfer]: transfer backends, which move bytes between registered regions;
/// - [io.kvferry.spi.kv]: KV connectors, which decide what to load and save for a request, and do
///   it;
/// - [io.kvferry.spi.ec]: encoder-cache connectors.
///
/// Beside them: memory and cache shapes ([io.kvferry.spi.memory]), options
/// ([io.kvferry.spi.config]), bytes between processes ([io.kvferry.spi.wire]), statistics and
/// events ([io.kvferry.spi.observe]), and here the errors: one exception and one value, both with
/// an [ErrorCode].
///
/// How they grow: a minor version may add default methods, optional interfaces, enum constants,
/// cases of sealed outcomes, and components of records that the host makes (contexts,
/// [io.kvferry.spi.kv.WorkerStep], reports). A plugin therefore reads host-made records through
/// their accessors, not by record patterns, and gives switches over the contracts' enums a default.
@NullMarked
package io.kvferry.spi;

import org.jspecify.annotations.NullMarked;
