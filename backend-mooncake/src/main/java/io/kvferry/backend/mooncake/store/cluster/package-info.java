// SPDX-License-Identifier: Apache-2.0
/// A real Mooncake cluster through the C API of `libmooncake_store.so` ([ClusterStore]).
///
/// The library is loaded when the first store is opened, is shared by all stores of the process
/// that use the same cluster, and is called on threads of its own only: a call that hangs holds one
/// of these threads and its staging memory, and never memory of an engine.
@NullMarked
package io.kvferry.backend.mooncake.store.cluster;

import org.jspecify.annotations.NullMarked;
