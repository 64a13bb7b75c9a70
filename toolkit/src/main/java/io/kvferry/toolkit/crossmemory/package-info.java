// SPDX-License-Identifier: Apache-2.0
/// Linux's cross memory attach: copies between the memory of two processes of one host, and the
/// proof that a process is the one that is meant.
@NullMarked
package io.kvferry.toolkit.crossmemory;

import org.jspecify.annotations.NullMarked;
