// SPDX-License-Identifier: Apache-2.0
/// Discovery of engines: segment documents, and the metadata services that hold them.
@NullMarked
package io.kvferry.backend.mooncake.te.internal.metadata;

import org.jspecify.annotations.NullMarked;
