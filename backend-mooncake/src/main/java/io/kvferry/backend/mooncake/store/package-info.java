// SPDX-License-Identifier: Apache-2.0
/// A store with Mooncake's semantics: immutable objects under string keys in named segments of host
/// memory, leases, pins, groups, count-based eviction ([EmbeddedStore]). [Store] is what its users
/// see, wherever the store is.
///
/// Lock order: the shards of [ObjectTable] (several only in ascending order), then an
/// [ObjectGroup], then a [Segment]. None is held while bytes are copied.
@NullMarked
package io.kvferry.backend.mooncake.store;

import org.jspecify.annotations.NullMarked;
