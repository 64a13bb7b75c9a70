// SPDX-License-Identifier: Apache-2.0
/// Parts that all of the pure-Java engine uses: addresses and listening sockets, the JSON of
/// Mooncake's documents, the proof of the fleet's secret, the id of one start of an engine.
@NullMarked
package io.kvferry.backend.mooncake.te.internal;

import org.jspecify.annotations.NullMarked;
