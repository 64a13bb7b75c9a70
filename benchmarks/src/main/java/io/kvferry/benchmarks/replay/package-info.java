// SPDX-License-Identifier: Apache-2.0
/// What DiskConnector finds again of a trace of real requests, beside an exact LRU over blocks.
@NullMarked
package io.kvferry.benchmarks.replay;

import org.jspecify.annotations.NullMarked;
