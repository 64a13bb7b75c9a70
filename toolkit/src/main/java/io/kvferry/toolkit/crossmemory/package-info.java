// SPDX-License-Identifier: Apache-2.0
/// Linux's cross memory attach: copies between the memory of two processes of one host, with a
/// check that the other process is the intended one.
@NullMarked
package io.kvferry.toolkit.crossmemory;

import org.jspecify.annotations.NullMarked;
