// SPDX-License-Identifier: Apache-2.0
/// The disk tier of a store: objects in bucket files, written in large pieces and read through
/// staging memory. Knows files and bytes; which objects go to disk and when is the store's to say.
@NullMarked
package io.kvferry.backend.mooncake.store.tier;

import org.jspecify.annotations.NullMarked;
