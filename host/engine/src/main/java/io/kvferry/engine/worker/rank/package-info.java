// SPDX-License-Identifier: Apache-2.0
/// What one rank does in a step: its part of the caches, its halves of the connectors, its runner
/// and the sampler.
@NullMarked
package io.kvferry.engine.worker.rank;

import org.jspecify.annotations.NullMarked;
