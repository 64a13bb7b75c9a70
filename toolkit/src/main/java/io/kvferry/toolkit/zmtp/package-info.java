// SPDX-License-Identifier: Apache-2.0
/// The side channel between the workers of engines: ZMTP 3 connections, with CURVE or without, and
/// the exchanges that they carry. Its text calls the side that asks the decoder and the side that
/// answers the prefiller, as in the first protocol that used it.
@NullMarked
package io.kvferry.toolkit.zmtp;

import org.jspecify.annotations.NullMarked;
