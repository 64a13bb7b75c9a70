// SPDX-License-Identifier: Apache-2.0
/// The decoder's side of one rank: which prefiller workers are asked for which blocks, what they
/// may write meanwhile, and when a load has ended. The worker half uses `DecodeService` alone.
@NullMarked
package io.kvferry.backend.mooncake.p2p.decode;

import org.jspecify.annotations.NullMarked;
