// SPDX-License-Identifier: Apache-2.0
/// A transfer backend to copy: the smallest that keeps the whole contract. It moves bytes between
/// registered host memory of its own process, one chunk per poll, on the one thread that drives it.
@NullMarked
package io.kvferry.examples.copy;

import org.jspecify.annotations.NullMarked;
