// SPDX-License-Identifier: Apache-2.0
/// A store over the owners that a master lists ([DirectoryStore]): each object is at one of them,
/// and a user asks all where it does not know at which.
@NullMarked
package io.kvferry.backend.mooncake.store.directory;

import org.jspecify.annotations.NullMarked;
