// SPDX-License-Identifier: Apache-2.0
/// The side channel between the workers of engines: ZMTP 3 connections, with or without CURVE, and
/// the exchanges they carry. The requesting side is called the decoder and the answering side the
/// prefiller, after the first protocol that used it.
@NullMarked
package io.kvferry.toolkit.zmtp;

import org.jspecify.annotations.NullMarked;
