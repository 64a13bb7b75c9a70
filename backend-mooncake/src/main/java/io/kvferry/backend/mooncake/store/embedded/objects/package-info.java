// SPDX-License-Identifier: Apache-2.0
/// The objects of an embedded store: what is known of each, the table that finds them, the segments
/// in which they lie, and the settings and counts of the store.
///
/// Lock order: the shards of [ObjectTable] (several only in ascending order), then an
/// [ObjectGroup], then a [Segment]. None is held while bytes are copied.
@NullMarked
package io.kvferry.backend.mooncake.store.embedded.objects;

import org.jspecify.annotations.NullMarked;
