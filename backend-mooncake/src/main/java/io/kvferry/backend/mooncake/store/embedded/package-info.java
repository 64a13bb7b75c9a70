// SPDX-License-Identifier: Apache-2.0
/// The store within this JVM ([EmbeddedStore]): the objects and where they lie, leases, count-based
/// eviction.
///
/// Lock order: the shards of [ObjectTable] (several only in ascending order), then an
/// [ObjectGroup], then a [Segment]. None is held while bytes are copied.
@NullMarked
package io.kvferry.backend.mooncake.store.embedded;

import org.jspecify.annotations.NullMarked;
