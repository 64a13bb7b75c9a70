// SPDX-License-Identifier: Apache-2.0
/// Reference plugins that keep everything in this JVM: a transfer backend (`MEMORY`), a KV
/// connector (`MemoryConnector`) and an encoder-cache connector (`ECMemoryConnector`). They show
/// each contract in its smallest complete form, and stand in for real transports and stores in
/// tests. What they share (a [MemoryStore], a [MemoryFabric]) is found by a name in their options,
/// as a folder or an address would be.
@NullMarked
package io.kvferry.tck.memory;

import org.jspecify.annotations.NullMarked;
