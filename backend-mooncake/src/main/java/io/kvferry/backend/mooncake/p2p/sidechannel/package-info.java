// SPDX-License-Identifier: Apache-2.0
/// The side channel between decoders and prefillers: ZMTP 3 connections, with CURVE or without, and
/// the exchanges that they carry.
@NullMarked
package io.kvferry.backend.mooncake.p2p.sidechannel;

import org.jspecify.annotations.NullMarked;
