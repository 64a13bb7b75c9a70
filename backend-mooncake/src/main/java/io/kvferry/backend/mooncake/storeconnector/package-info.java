// SPDX-License-Identifier: Apache-2.0
/// `MooncakeStoreConnector`: keeps KV blocks in a [io.kvferry.backend.mooncake.store.Store], found
/// again by their hashes. The store is one of this JVM, shared by name between its engines.
@NullMarked
package io.kvferry.backend.mooncake.storeconnector;

import org.jspecify.annotations.NullMarked;
