// SPDX-License-Identifier: Apache-2.0
/// Host memory for caches: how its pages are mapped.
@NullMarked
package io.kvferry.toolkit.memory;

import org.jspecify.annotations.NullMarked;
