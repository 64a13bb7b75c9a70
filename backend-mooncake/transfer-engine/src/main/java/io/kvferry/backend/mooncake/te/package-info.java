// SPDX-License-Identifier: Apache-2.0
/// The Mooncake transfer engine: the interface that connectors and the transfer backend use, and an
/// implementation in pure Java that speaks Mooncake's metadata, handshake and TCP data protocols,
/// with an extension between kvferry peers that other peers ignore.
@NullMarked
package io.kvferry.backend.mooncake.te;

import org.jspecify.annotations.NullMarked;
