// SPDX-License-Identifier: Apache-2.0
/// What users of a store with Mooncake's semantics see, wherever it is: immutable objects under
/// string keys in named segments of host memory, leases, pins and groups ([Store]).
@NullMarked
package io.kvferry.backend.mooncake.store;

import org.jspecify.annotations.NullMarked;
