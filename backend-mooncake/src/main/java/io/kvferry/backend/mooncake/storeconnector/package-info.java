// SPDX-License-Identifier: Apache-2.0
/// `MooncakeStoreConnector`: keeps KV blocks in a [io.kvferry.backend.mooncake.store.Store], found
/// again by their hashes. The store is in this JVM, in an owner process, or a Mooncake cluster.
@NullMarked
package io.kvferry.backend.mooncake.storeconnector;

import org.jspecify.annotations.NullMarked;
