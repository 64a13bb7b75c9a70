// SPDX-License-Identifier: Apache-2.0
/// What moves objects of an embedded store to its disk tier and back ([Offloads], [Promotions]),
/// and deletes buckets where the disk needs room.
@NullMarked
package io.kvferry.backend.mooncake.store.embedded.offload;

import org.jspecify.annotations.NullMarked;
