// SPDX-License-Identifier: Apache-2.0
/// The staging pool of a host: a buddy allocator over one segment.
@NullMarked
package io.kvferry.toolkit.staging;

import org.jspecify.annotations.NullMarked;
