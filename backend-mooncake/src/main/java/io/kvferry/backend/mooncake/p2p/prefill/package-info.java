// SPDX-License-Identifier: Apache-2.0
/// The prefiller's side of one rank: who waits for which transfer, and how finished blocks are
/// carried to decoders, by writes of the transfer engine or by offers that decoders read. The
/// worker half uses `PrefillService` alone.
@NullMarked
package io.kvferry.backend.mooncake.p2p.prefill;

import org.jspecify.annotations.NullMarked;
