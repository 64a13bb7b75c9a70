// SPDX-License-Identifier: Apache-2.0
/// Host memory of a store, and who hands out its parts.
@NullMarked
package io.kvferry.backend.mooncake.store.memory;

import org.jspecify.annotations.NullMarked;
