// SPDX-License-Identifier: Apache-2.0
/// The store within this JVM ([EmbeddedStore]): its users, puts, reads with their leases, removals,
/// count-based eviction.
@NullMarked
package io.kvferry.backend.mooncake.store.embedded;

import org.jspecify.annotations.NullMarked;
